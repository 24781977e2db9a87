"""Consoles and displays of this node's guests for virt-api: websockets over mTLS, joined with unix sockets in pods.

``server`` serves the paths of ``apis.virt.places.streams``; ``pipe`` copies both ways with limited buffers; ``limits`` counts open streams,
``forwarding`` dials ports of guests, ``slots`` tracks slots for USB devices, ``usbredir`` checks the USB protocol of clients.
"""
