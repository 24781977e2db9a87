"""Disks of the guest before libvirt sees them: files, images, servers, certificates and firmware state."""
