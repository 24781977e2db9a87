"""Values encrypted at rest, byte for byte as Kubernetes' own servers do it (``k8s.io/apiserver/pkg/storage/value``).

``ciphers`` are the providers and the chain of them that a resource has, ``configuration`` reads the EncryptionConfiguration file,
``kms`` keeps keys in a key management service, ``store`` wraps a storage. Keys are neither logged nor put into messages of errors.
"""
