"""Methods on resources: one module a kind of verb."""
