"""Our CEL compared with cel-go in Kubernetes' environment, over a table and generated expressions.

``go/`` is a program around k8s.io/apiserver. Both sides must agree on the value, or on an error, and on the cost.
"""
