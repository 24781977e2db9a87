"""HTTP/1.1 as this server speaks it: requests in, responses and streams out, over one asyncio protocol for each connection.

Four layers, of which the first two know no event loop:

* :mod:`heads` and :mod:`reading` turn bytes into requests, strictly: what two parties could read differently (RFC 9112, section 11.2) is
  refused with 400, and the connection closed;
* :mod:`messages` is what a handler sees and returns;
* :mod:`connection` and :mod:`server` move the bytes, keep every buffer and every wait bounded, and stop in order;
  :mod:`websocket` takes a connection over;
* :mod:`hello`, :mod:`tls`, :mod:`handshakes`, :mod:`turns` and :mod:`caps` stand before that: TLS, and how much those get who have not
  shown yet who they are; :mod:`allowances` says the same of an open connection.

HTTP/2 is not spoken: kubectl, client-go and the aggregator fall back to HTTP/1.1 by ALPN.
"""
