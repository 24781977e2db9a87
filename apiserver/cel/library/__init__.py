"""Functions by subject. :data:`apiserver.cel.library.kubernetes.LIBRARY` has all that Kubernetes' environment has."""
