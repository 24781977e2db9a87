"""Keys in a key management service: version 2 of Kubernetes' plug-in API, by gRPC on a Unix socket.

Keys of values derive from our seed, stored encrypted by the service with every value, so calls are one per seed, and one per minute for the
status (``k8s.io/kms/apis/v2``, ``k8s.io/apiserver/pkg/storage/value/encrypt/envelope/kmsv2``).
"""
