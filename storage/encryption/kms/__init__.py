"""Keys in a key management service: version 2 of Kubernetes' plug-in API, by gRPC on a Unix socket.

Keys of values derive from our seed, which the service encrypts and every value contains. So calls are one per seed, and one per minute for
the status (``k8s.io/apiserver/pkg/storage/value/encrypt/envelope/kmsv2``).
"""
