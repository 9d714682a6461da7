"""The module `llm_judge`."""
