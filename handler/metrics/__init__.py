"""The page ``/metrics`` of virt-handler: this process, and its node's guests."""
