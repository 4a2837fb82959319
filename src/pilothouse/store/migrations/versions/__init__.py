"""One module for each step, named for its number and what it does."""
