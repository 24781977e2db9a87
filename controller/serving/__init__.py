"""Servers of virt-controller and virt-handler, and metrics of their loops.

``listening`` runs an aiohttp application for few clients. Its users are ``health`` (for the kubelet), ``metrics`` (for Prometheus) and
``evictions`` (kube-apiserver's admission webhook).
"""
