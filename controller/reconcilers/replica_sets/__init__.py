"""The loop for VirtualMachineReplicaSets, which keeps the number of machines that a set wants.

``replica_set_plan`` decides, from ``membership`` (which machines a set has), ``finished`` (which are over), ``readiness`` (which are
available) and ``scale_down`` (which to delete first).

Source of the rules: ``k8s.io/kubernetes/pkg/controller/replicaset``.
"""
