"""The module `lora`."""
