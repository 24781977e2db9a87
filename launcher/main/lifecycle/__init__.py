"""The life of the domain: prepare, start, watch, migrate, suspend and stop it."""
