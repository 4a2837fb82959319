"""Where advisories come from: what is shipped, what was synced, OSV's API, and directories of files."""
