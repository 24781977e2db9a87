"""A real two-node Kubernetes on one machine, for the demo and for the tests that are marked ``cluster``.

Real means: kube-apiserver with the aggregation layer, controller manager, scheduler, kube-proxy, two kubelets and two containerds
of the released sources, CoreDNS, Helm. What makes two nodes of one machine is Linux: every node is a network namespace on a bridge
and a mount namespace with its own ``/var/lib/kubelet``.

What belongs here: building those programs (``build``), the cluster's life (``cluster``: ``up`` and ``down``), our container images
(``images``), the demo (``demo``). What does not: anything that a user's cluster would need.

Only the standard library is imported, because ``make demo`` starts here before any virtual environment exists.

Picture of one machine::

    root namespaces: etcd, kube-apiserver, kube-controller-manager, kube-scheduler
        10.100.0.1 and fd00:10:100::1 on the bridge kvbr0
          ├─ node1 10.100.0.11: containerd, kubelet, kube-proxy, NetworkPolicies; pods 10.244.1.0/24, fd00:10:244:1::/64
          └─ node2 10.100.0.12: containerd, kubelet, kube-proxy, NetworkPolicies; pods 10.244.2.0/24, fd00:10:244:2::/64

No node has a route out of the machine: nothing in a test cluster has business there.
"""
