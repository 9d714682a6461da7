"""What the monitor looks like: text, live screen, words, cells."""
