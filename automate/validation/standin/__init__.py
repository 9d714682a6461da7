"""A stand-in of the outside world on loopback: the API, a model hub and a judge, with faults on request."""
