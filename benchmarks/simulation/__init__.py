"""Experiments with the simulator, one command each; they need the shared data (PILOTHOUSE_DATA, see `data.py`)."""
