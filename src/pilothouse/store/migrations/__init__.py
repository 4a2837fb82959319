"""The steps from one schema to the next, run in the process that opens the database."""
