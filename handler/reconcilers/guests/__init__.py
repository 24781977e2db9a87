"""Guests of this node: observe each, plan the next actions, apply them, report."""
