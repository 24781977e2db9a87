"""Processes and links cut at each step of a migration, of a drain and of an upgrade: what is cut, what comes of it, and docs/faults.md."""
