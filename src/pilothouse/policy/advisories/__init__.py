"""What may serve: advisories, the launch features they need, and the verdict on each deployment."""
