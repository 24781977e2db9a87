"""Cuts of processes and links at each step of a migration, a drain and an upgrade, for docs/faults.md."""
