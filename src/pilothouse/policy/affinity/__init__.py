"""Where a request's prefix is likely cached, and what it is worth to go there."""
