"""Live migrations: the loop that gives each its target pod and its end, and what it is decided by."""
