"""The cluster-wide loops: virt-controller."""
