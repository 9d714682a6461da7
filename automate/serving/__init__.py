"""Serving a judge: finding, starting, watching and rehearsing one."""
