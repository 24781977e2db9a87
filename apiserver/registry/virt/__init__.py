"""Strategies, tables and subresources of virtual machines and migrations."""
