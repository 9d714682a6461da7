"""A batch inside its job, from its claims to what comes after it."""
