"""The audit log (``audit.k8s.io/v1``): who requested what, when, and with which outcome."""
