"""What the fleet says about itself: the board that workers count on, the metrics made of it, and logs."""
