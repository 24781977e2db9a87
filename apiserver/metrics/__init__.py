"""Prometheus metrics, like ``k8s.io/component-base/metrics`` in Go.

``instruments`` has the registry, ``exposition`` writes the page.
"""
