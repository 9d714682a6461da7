"""The outer layer: an isolated environment for each module, built aside and moved into place."""
