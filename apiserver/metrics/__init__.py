"""Prometheus metrics, like ``k8s.io/component-base/metrics`` in Go.

``instruments`` has counters, gauges, histograms and the registry; ``exposition`` writes the page. Other packages define the
metrics. virt-controller and virt-handler count far less often and use ``prometheus_client``.
"""
