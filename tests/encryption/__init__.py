"""Our encryption at rest compared with Kubernetes' own: ``go/`` is a small program around ``k8s.io/apiserver``."""
