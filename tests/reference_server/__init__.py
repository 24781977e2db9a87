"""The reference server: ``k8s.io/sample-apiserver`` next to our framework with the same API.

- ``flunders``, ``serve``: ``wardle.example.com`` as strategies, in a separate process
- ``environment``: certificates, etcd, kube-apiserver
- ``servers``: both servers
"""
