"""The inner layer: `python -m automate.validation.runner ASSIGNMENT_DIR` does one assignment with one module.

Needs pydantic and what the module declares; never talks to the API."""
