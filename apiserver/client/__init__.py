"""client-go in miniature: configuration, requests, watches, informers, over HTTP/1.1 by h11. Objects are plain JSON."""
