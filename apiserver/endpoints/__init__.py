"""HTTP: verbs, negotiation, discovery, OpenAPI, patches, watches, connections. Knows nothing of virtual machines."""
