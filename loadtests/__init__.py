"""What is sent to a target, and when."""
