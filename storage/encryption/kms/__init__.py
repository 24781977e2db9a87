"""Keys that a key management service keeps: version 2 of Kubernetes' plug-in API, over gRPC on a Unix socket.

Values are encrypted with keys derived from a seed of ours; the service encrypts the seed, and its ciphertext is stored beside every value.
So the service is asked once for each seed that comes along, and once a minute how it is (``k8s.io/kms/apis/v2``,
``k8s.io/apiserver/pkg/storage/value/encrypt/envelope/kmsv2``).
"""
