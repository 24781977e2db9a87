"""The loop for VirtualMachineReplicaSets, which keeps the number of machines that a set wants.

- ``membership`` decides which machines a set has.
- ``finished`` decides which of them are over, and ``readiness`` which are available.
- ``scale_down`` orders those that are too many.
- ``replica_set_plan`` decides, ``replica_set_status`` reports, and ``reconciler`` is the loop.

Source of the rules: ``k8s.io/kubernetes/pkg/controller/replicaset``. All modules but ``reconciler`` are pure.
"""
