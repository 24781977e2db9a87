"""virt-api and what it shares: the API as data (``apis``), the client (``client``), the plugin (``kubectl``), the server."""
