"""Which arm of a split a session gets: drawn once, and kept while weights change as far as it can be."""
