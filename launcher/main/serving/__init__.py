"""Sockets that virt-launcher serves: the wire protocol for virt-handler, and the consoles."""
