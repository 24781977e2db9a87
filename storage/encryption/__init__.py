"""Encryption at rest, byte-compatible with Kubernetes' servers (``k8s.io/apiserver/pkg/storage/value``).

Logs and errors contain no keys.
"""
