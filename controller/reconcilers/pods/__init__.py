"""Launcher pods as virt-controller finds them: their owners, their state, and the Events about them.

Read ``ownership`` first: a label does not make a pod a machine's. ``pod_state`` reads a pod's status. ``liveness`` judges whether
anything of a pod may still run, from what ``evidence`` gathers and ``absences`` remembers. ``leftovers`` compares a pod that already has
the name of a new one, and ``readiness`` decides whether Services may reach the guest in a pod. ``mounted_sources``, ``networks`` and
``sandboxes`` tell what keeps a kubelet from starting a pod; ``kubelet_events`` and ``networks.gather`` read that from the API server.
:mod:`controller.reconcilers.launcher_pods` builds new pods.
"""
