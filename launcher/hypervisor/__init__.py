"""The only package that imports libvirt: the port, its libvirt implementation."""
