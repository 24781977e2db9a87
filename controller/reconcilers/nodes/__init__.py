"""Nodes, as far as virtual machines depend on them: silent ones, those that are being emptied, and the CPUs that they have in common."""
