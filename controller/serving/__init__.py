"""Servers of processes that are no API server (health for the kubelet, metrics for those who may read them), and what their loops count."""
