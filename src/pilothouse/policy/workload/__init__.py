"""What kind of work a request is, and which engines do that kind best."""
