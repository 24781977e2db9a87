"""The wiring of virt-controller."""
