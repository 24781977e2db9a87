"""Prometheus' metrics, as ``k8s.io/component-base/metrics`` is for Go: what counts, and the page that says what was counted.

``instruments`` are counters, gauges and histograms with their registry, ``exposition`` is how they are written. Which metrics there are is
said by whoever counts. virt-controller and virt-handler, which count a hundredth as often, do so with ``prometheus_client``.
"""
