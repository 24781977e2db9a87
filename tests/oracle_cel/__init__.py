"""Our CEL compared with cel-go in Kubernetes' own environment, over a table and generated expressions.

``go/`` is a small program around k8s.io/apiserver that answers JSON lines; ``program`` builds and runs it. Both sides must agree on the
value, or on an error, and on the cost. Expressions that only Go's type checker refuses are counted separately: kube-apiserver refuses such
policies, so we never get them. ``python -m tests.oracle_cel --expressions 20000 --seed 1`` runs many.
"""
