"""Encryption at rest, byte-compatible with Kubernetes' servers (``k8s.io/apiserver/pkg/storage/value``).

``ciphers`` has the providers and a resource's chain of them, ``configuration`` parses the EncryptionConfiguration file,
``kms`` uses a key management service, ``store`` wraps a storage. Logs and errors never contain keys.
"""
