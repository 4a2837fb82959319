"""Where replicas run: processes of this host, their records, and the weights they need."""
