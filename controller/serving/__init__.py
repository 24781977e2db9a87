"""Servers of virt-controller and virt-handler, and metrics of their loops.

Start with ``listening``: it runs an aiohttp application for few clients and limits their connections. It is used by ``health`` (``/livez``
and ``/readyz`` over HTTP, for the kubelet), ``metrics`` (``/metrics`` over TLS, for users who may ``get`` that path) and ``evictions``
(kube-apiserver's admission webhook for evictions, only in virt-controller).

Each is an object with ``run()``, which serves until cancelled, and gets its content as arguments: checks, a function that renders metrics,
one that admits. ``reconcile_metrics`` counts passes of both processes' loops.
"""
