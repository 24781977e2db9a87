"""Launcher pods as virt-controller finds them: their owners, their state, and the Events about them.

Read ``ownership`` first: a label does not make a pod a machine's. ``liveness`` judges whether anything of a pod may run.
``mounted_sources``, ``networks`` and ``sandboxes`` tell what keeps a kubelet from starting a pod.

:mod:`controller.reconcilers.launcher_pods` builds new pods.
"""
