"""How far along models are: counts that follow files as they grow, at little cost."""
