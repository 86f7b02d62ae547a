"""What happened: the types every room shares, their JSON lines, and the run directory."""
