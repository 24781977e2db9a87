"""Enforces NetworkPolicies in the test cluster: one process per node writes nftables rules for the node's pods.

CNI's bridge plugin enforces none. kube-network-policies needs nftables' ``queue``, which kernels of small machines lack. This covers
``networking.k8s.io/v1`` for IPv4 and IPv6 on a pod's own network, but no further networks (Multus), and no connections from before a
policy.
"""
