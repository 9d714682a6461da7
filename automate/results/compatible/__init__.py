"""Arena-Hard's own numbers, as its own program prints them."""
