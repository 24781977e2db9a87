"""client-go in miniature: configuration, requests, watches, informers, over aiohttp. Objects are plain JSON."""
