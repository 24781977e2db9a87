"""Prometheus metrics, like ``k8s.io/component-base/metrics`` in Go: ``instruments``, and the page by ``exposition``."""
