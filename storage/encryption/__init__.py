"""Encryption at rest, byte-compatible with Kubernetes' servers (``k8s.io/apiserver/pkg/storage/value``).

``ciphers`` has the providers and their chains, ``configuration`` parses the EncryptionConfiguration file, ``store`` wraps a
storage. Logs and errors contain no keys.
"""
