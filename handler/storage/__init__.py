"""Disks that storage plugins set up on this node; docs/storage-plugins.md specifies their requests and answers."""
