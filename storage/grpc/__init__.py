"""A gRPC client over HTTP/2 for etcd and key management services: unary calls, and streams for watches.

``frames`` encodes frames (RFC 9113), ``headers`` header blocks, ``calls`` is one exchange of messages, ``session`` a connection without
socket, ``link`` adds socket, deadlines and pings. A commit's frame handling takes 96 µs with h2, and 60 to 100 in total with gRPC's own
library. Here all requests have the same headers, and so have all answers: a call takes 3 µs.

The peer is not trusted: buffers, header blocks, queued control frames and messages are bounded, and a protocol violation
ends the connection.
"""
