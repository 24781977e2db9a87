"""Our encryption at rest compared with ``k8s.io/apiserver``."""
