"""The HTTP/1.1 server: requests in, responses and streams out, one asyncio protocol per connection.

* :mod:`heads` and :mod:`reading` parse strictly: ambiguous input (RFC 9112, section 11.2) gets 400, and the connection closes;
* :mod:`connection` and :mod:`server` move bytes; :mod:`websocket` takes over a connection;
* :mod:`hello`, :mod:`tls`, :mod:`handshakes`, :mod:`turns` and :mod:`caps` limit unauthenticated clients.

By ALPN, kubectl, client-go and the aggregator fall back from HTTP/2.
"""
