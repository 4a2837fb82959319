"""What arrives at a simulated fleet: traces, generators, and operations on both."""
