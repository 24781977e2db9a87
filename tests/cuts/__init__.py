"""Cuts of processes and links at each step of a migration, drain and upgrade, for docs/faults.md."""
