"""``make bench-api``: the cost of operations on our server and on the reference server."""
