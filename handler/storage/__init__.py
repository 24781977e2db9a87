"""Disks that storage plugins set up on this node; docs/storage-plugins.md specifies their requests and answers.

``requests`` makes the requests and ``answers`` parses the answers; both are pure. ``directories`` makes the directory in the pod where a
plugin may put a disk, and checks what it put there; ``nbd`` gets a disk's size from its server. ``adding`` combines these.
"""
