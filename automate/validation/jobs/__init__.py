"""Array jobs over what is fetched, and what became of them."""
