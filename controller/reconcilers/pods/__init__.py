"""Launcher pods as virt-controller finds them: whose they are, what they say of themselves, and what is said in them.

``ownership`` is to be read first: a label makes no pod a machine's. ``pod_state`` reads what became of one, ``leftovers`` looks at one that
has the name of a pod to be made, ``readiness`` says in it whether Services may reach the guest. ``mounted_sources``, ``networks`` and
``sandboxes`` tell what keeps a kubelet from starting one; ``kubelet_events`` and ``networks.gather`` read that. All else is pure; what a
new pod looks
like is the business of :mod:`controller.reconcilers.launcher_pods`.
"""
