"""The HTTP/1.1 server: requests in, responses and streams out, one asyncio protocol per connection.

* :mod:`heads` and :mod:`reading` parse strictly, without event loop: ambiguous input (RFC 9112, section 11.2) gets 400, and
  the connection closes;
* :mod:`messages`: requests and responses for handlers;
* :mod:`connection` and :mod:`server` move bytes, bound buffers and waits, and shut down; :mod:`websocket` takes over a
  connection;
* :mod:`hello`, :mod:`tls`, :mod:`handshakes`, :mod:`turns` and :mod:`caps` do TLS and limit unauthenticated clients;
  :mod:`allowances` limits connections.

HTTP/2 is not supported: by ALPN, kubectl, client-go and the aggregator fall back.
"""
