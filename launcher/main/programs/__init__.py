"""Child processes of virt-launcher, and its container's resources."""
