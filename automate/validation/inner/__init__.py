"""The inner layer: what runs in a module's own environment. Needs pydantic and the standard library only."""
