"""Our field managers and patches against Kubernetes' own, over generated histories.

``go/`` is a small program around k8s.io/apimachinery that answers JSON lines; ``program`` builds and runs it. A *history*
(``histories``) is a sequence of writes by several managers to one object: creates, updates with and without managedFields, applies,
patches of all kinds, writes to ``/status``, in two versions. After every write the object, the managedFields with all orders in them,
and the text of an error must be the same on both sides (``compare``). ``python -m tests.oracle --sequences 50000 --seed 1`` runs many
and stops at the first difference with the shortest history that shows it.
"""
