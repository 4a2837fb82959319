"""Bytes to values and back. Sans-IO: nothing here reads a socket, a clock or a file."""
