"""A gRPC client over HTTP/2 for etcd and key management services: unary calls, and streams for watches.

``link`` is a connection with socket, deadlines and pings, ``session`` one without.

The peer is not trusted: buffers, header blocks, queued control frames and messages are bounded, and a protocol violation ends the
connection.
"""
