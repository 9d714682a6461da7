"""Evaluations of benchmark pools on the cluster, through fleets of model servers."""
