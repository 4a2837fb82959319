"""The fleet in virtual time: engines as step-time models, and around them the same policy objects that production runs."""
