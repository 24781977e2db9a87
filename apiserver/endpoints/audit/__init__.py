"""The audit log: who asked for what, when, and what came of it (``audit.k8s.io/v1``)."""
