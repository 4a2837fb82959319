"""The admin API on the controller's listener: health, metrics, the fleet's status and changes to it."""
