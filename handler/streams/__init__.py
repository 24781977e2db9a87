"""Consoles and displays of this node's guests for virt-api: websockets over mTLS, joined with unix sockets in pods."""
