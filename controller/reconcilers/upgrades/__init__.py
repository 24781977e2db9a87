"""Upgrades: the loop that takes guests into pods of the release, and what it is decided by."""
