"""Plugins: executables that set up guests' networks and storage on the node; docs/plugins.md specifies them.

They belong to the administrator and run as root. Their answers are still untrusted, so that a plugin's bug does not affect all guests.
"""
