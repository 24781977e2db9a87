"""The reference server: ``k8s.io/sample-apiserver`` next to our framework with the same API.

``python -m tests.reference_server up ours|reference|both`` starts an etcd, a bare kube-apiserver and the servers.
- ``flunders``, ``serve``: ``wardle.example.com`` as strategies, in a separate process
- ``environment``: certificates, etcd, kube-apiserver
- ``servers``: both servers
"""
