"""``make bench-scale``: the control plane with thousands of simulated nodes and their machines.

Real are etcd, kube-apiserver, kube-scheduler, kube-controller-manager, virt-api and virt-controller, with the chart's rights and policies,
and virt-handler's loops. Simulated are kubelets (kwok) and virt-launchers: the fake of the component tests, with the real protocol.
"""
