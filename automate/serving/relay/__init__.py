"""An HTTP relay that asks for a key: in front of each worker, and in front of the router."""
