"""Child processes of virt-launcher, and the resources of its container."""
