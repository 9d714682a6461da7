"""A pretended cluster under the local queue, by a scenario."""
