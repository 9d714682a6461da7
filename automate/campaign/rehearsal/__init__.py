"""A campaign played against rehearsal judges on a pretended cluster."""
