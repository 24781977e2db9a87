"""Certificates of the release and of its nodes: the loops that keep them good, and what they are decided by."""
