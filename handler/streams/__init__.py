"""Console and VNC of this node's guests, for virt-api: websockets over mTLS on one side, unix sockets in pods on the other.

``server`` serves the paths of ``apis.virt.places.streams``; ``pipe`` copies bytes both ways with bounded buffers; ``limits`` counts
what is open, ``slots`` which places for USB devices are taken, ``usbredir`` holds what their clients send to
its protocol.
"""
