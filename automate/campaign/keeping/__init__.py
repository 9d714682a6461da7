"""Archives of a workspace, and bundles for bug reports without secrets."""
