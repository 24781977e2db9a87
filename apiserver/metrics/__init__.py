"""Prometheus metrics, like ``k8s.io/component-base/metrics`` in Go.

``instruments`` has counters, gauges, histograms and the registry; ``exposition`` writes the page. virt-controller and
virt-handler count less and use ``prometheus_client``.
"""
