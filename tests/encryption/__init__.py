"""Our encryption at rest against Kubernetes' own: ``go/`` is a small program around ``k8s.io/apiserver``."""
