"""Plugins: executables that set up guests' networks and storage on the node; docs/plugins.md specifies them.

Their answers are untrusted, so a plugin's bug does not affect all guests.
"""
