"""The simulator against recorded runs, reference tables and its own stepped mode."""
