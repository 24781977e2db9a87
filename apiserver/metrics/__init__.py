"""Prometheus metrics, like ``k8s.io/component-base/metrics`` in Go.

``instruments`` has counters, gauges, histograms and the registry; ``exposition`` writes the page; ``process`` describes the
process.
"""
