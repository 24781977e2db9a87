"""Keys in a key management service: version 2 of Kubernetes' plug-in API, by gRPC on a Unix socket.

Values are encrypted with keys derived from our seed; the service encrypts the seed, stored with every value. So the service
is called once per seed, and once a minute for its status (``k8s.io/kms/apis/v2``,
``k8s.io/apiserver/pkg/storage/value/encrypt/envelope/kmsv2``).
"""
