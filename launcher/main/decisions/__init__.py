"""Decisions of virt-launcher about its domain, as functions of state. No I/O."""
