"""Functions by subject. :data:`apiserver.cel.library.kubernetes.LIBRARY` has those of Kubernetes' environment."""
