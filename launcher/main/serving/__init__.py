"""Sockets that virt-launcher serves: the protocol for virt-handler, and consoles."""
