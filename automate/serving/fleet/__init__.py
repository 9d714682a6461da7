"""A fleet of model servers, as those see it who use it: registry, keys, choice of a worker."""
