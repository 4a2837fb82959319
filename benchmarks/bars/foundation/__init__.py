"""A fleet in one command: start, byte path, kills, disconnects, clients, tests."""
