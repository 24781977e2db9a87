"""A gRPC client over HTTP/2, for etcd and for key management services: unary calls, and streams for the watches.

``frames`` is how things look on the wire (RFC 9113), ``headers`` the few header blocks that gRPC needs, ``calls`` one exchange of
messages, ``session`` one connection without its socket (``sending`` is its way out), ``link`` the same with socket, deadlines and pings;
``stubs`` writes the code of messages, in development.
A library does better on every path but this one: a commit through h2 costs 96 µs of frame handling alone and through gRPC's own library
60 to 100 in all, since both are made for any peer and any headers. Here every request has the same headers and every answer, too, so
that a call is two packed structs, one dictionary look-up and one future: 3 µs of frame handling. hpack decodes whatever was not seen.

The peer is not trusted: buffers, header blocks, the number of control frames that wait for the socket and messages are bounded, and what
breaks the protocol ends the connection.
"""
