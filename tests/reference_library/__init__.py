"""Our field managers and patches compared with Kubernetes' own, over generated histories.

``go/`` is a program around k8s.io/apimachinery. A *history* is a sequence of writes by several managers to one object, in two versions:
creates, updates with and without managedFields, applies, patches of all kinds, writes to ``/status``. After every write the object, the
managedFields in order, and an error's text must be equal, or ``Difference`` is raised.
"""
