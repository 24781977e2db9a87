"""Our CEL against cel-go in Kubernetes' own environment, over a table of expressions and over generated ones.

``go/`` is a small program around k8s.io/apiserver that answers JSON lines; ``program`` builds and runs it. Both sides have to agree on the
value, or that there is none, and on the cost. Expressions that only Go's type checker refuses are counted apart: kube-apiserver refuses
such policies when they are written, so that none reaches us. ``python -m tests.oracle_cel --expressions 20000 --seed 1`` runs many.
"""
