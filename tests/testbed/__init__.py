"""A real two-node Kubernetes on one machine, for the demo and for tests marked ``cluster``.

It runs Kubernetes and containerd from released sources, with the aggregation layer, CoreDNS and Helm. Each node is a network namespace on a
bridge and a mount namespace with its own ``/var/lib/kubelet``.

It imports only the standard library, because ``make demo`` starts here before a virtual environment exists. A step that fails raises
``progress.StepFailed``.

One machine::

    root namespaces: etcd, kube-apiserver, kube-controller-manager, kube-scheduler
        10.100.0.1 and fd00:10:100::1 on the bridge kvbr0
          ├─ node1 10.100.0.11: containerd, kubelet, kube-proxy, NetworkPolicies; pods 10.244.1.0/24, fd00:10:244:1::/64
          └─ node2 10.100.0.12: containerd, kubelet, kube-proxy, NetworkPolicies; pods 10.244.2.0/24, fd00:10:244:2::/64

No node has a route out of the machine.
"""
