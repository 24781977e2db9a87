"""What the methods do to resources: one module a kind of verb."""
