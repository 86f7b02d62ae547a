"""What the server says of itself: its metrics page, in canonical names."""
