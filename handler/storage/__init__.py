"""Disks that storage plugins set up on this node. docs/storage-plugins.md specifies what such a plugin is told and may answer.

``requests`` has what it is told and ``answers`` reads what it said: both are pure. ``directories`` makes the place in the pod where a
plugin may put a disk, and looks at what it put there; ``nbd`` asks a server for the disk's size. ``adding`` ties these together.
"""
