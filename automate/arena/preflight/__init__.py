"""All that can be known before a GPU is asked for, with stable codes."""
