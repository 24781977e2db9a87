"""The Common Expression Language, as Kubernetes extends it."""
