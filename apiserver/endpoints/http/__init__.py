"""The HTTP/1.1 server: requests in, responses and streams out, one asyncio protocol per connection.

* :mod:`heads` and :mod:`reading` parse strictly, without an event loop: what two parties could read differently (RFC 9112,
  section 11.2) gets 400, and the connection closes;
* :mod:`messages` has the requests and responses that handlers see;
* :mod:`connection` and :mod:`server` move bytes, bound every buffer and every wait, and shut down in order;
  :mod:`websocket` takes over a connection;
* :mod:`hello`, :mod:`tls`, :mod:`handshakes`, :mod:`turns` and :mod:`caps` do TLS and limit unauthenticated clients;
  :mod:`allowances` limits open connections.

HTTP/2 is not supported: by ALPN, kubectl, client-go and the aggregator fall back to HTTP/1.1.
"""
