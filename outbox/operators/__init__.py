"""What operators may do, as data."""
