"""Virtual machines: the loop that keeps a pod for each that should be on, and what it is decided by."""
