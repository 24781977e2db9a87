"""Servers of virt-controller and virt-handler, and metrics of their loops.

``listening`` runs an aiohttp application for few clients and limits their connections. Its users are ``health`` (for the kubelet),
``metrics`` (for Prometheus) and ``evictions`` (kube-apiserver's admission webhook, only in virt-controller). ``reconcile_metrics`` counts
passes of both processes' loops.
"""
