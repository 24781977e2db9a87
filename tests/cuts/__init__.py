"""Cuts of processes and links at each step of a migration, a drain and an upgrade, and their results for docs/faults.md."""
