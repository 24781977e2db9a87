"""The page ``/metrics`` of virt-handler: this process, and the guests of its node."""
