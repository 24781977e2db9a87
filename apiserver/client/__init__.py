"""client-go in miniature: configuration, requests, watches, informers, over HTTP/1.1 by httptools. Objects are plain JSON."""
