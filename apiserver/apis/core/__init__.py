"""Kubernetes' built-in kinds that our processes use: plain JSON, without models."""
