"""The brain: pure decisions and machines, shared by the gateway, the controller and the simulator."""
