"""HTTP/1.1 on pooled connections: sockets, one wait for all of them, responses."""
