"""The reference twin: ``k8s.io/sample-apiserver`` beside the same API served by our framework, both on loopback.

``python -m tests.twin up ours|twin|both`` starts an etcd, a bare kube-apiserver and the servers, and prints how to reach them.

- ``build``: the sample-apiserver, built as a Go module into the cache
- ``flunders``, ``serve``: ``wardle.example.com`` as strategies, in a process of its own
- ``environment``: certificates, etcd, kube-apiserver, and what must be in it
- ``servers``: the flags of both servers, starting and stopping them
"""
