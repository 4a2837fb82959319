"""What is measured and never asserted: bars of issues, and runs beside the peers."""
