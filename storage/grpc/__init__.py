"""A gRPC client over HTTP/2 for etcd and key management services: unary calls, and streams for watches.

``frames`` encodes frames (RFC 9113), ``headers`` the few header blocks of gRPC, ``calls`` is one exchange of messages,
``session`` one connection without its socket (``sending`` is its output), and ``link`` adds socket, deadlines and pings;
``stubs`` generates message code in development. Libraries are better at everything but speed: a commit takes 96 µs of frame
handling with h2, and 60 to 100 in total with gRPC's own library, because they support any peer and any headers. Here all
requests have the same headers, and so have all answers. A call is two packed structs, a dictionary lookup and a future: 3
µs of frame handling. hpack decodes new header blocks.

The peer is not trusted: buffers, header blocks, queued control frames and messages are bounded, and a protocol violation
ends the connection.
"""
