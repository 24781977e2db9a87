"""Guests of this node: gather the state of each, plan the next actions, apply them, report."""
