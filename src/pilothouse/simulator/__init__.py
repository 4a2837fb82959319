"""The fleet in virtual time: engines as step-time models, and around them the policy objects of production."""
