"""Servers of processes that are no API server, and what their loops count. virt-controller and virt-handler have them.

``listening`` is to be read first: it runs an aiohttp application for few clients, and bounds their connections. On it stand
``health`` (``/livez`` and ``/readyz`` by HTTP, for the kubelet), ``metrics`` (``/metrics`` over TLS, for whoever may ``get`` that path)
and ``evictions`` (the admission webhook that kube-apiserver asks about evictions; virt-controller's alone).

Each is an object with ``run()``, which serves until it is cancelled. What it serves is given to it: checks, a function that renders the
metrics, one that admits. ``reconcile_metrics`` counts passes of loops in virt-controller and virt-handler alike.
"""
