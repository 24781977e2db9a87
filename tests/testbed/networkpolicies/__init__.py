"""Enforces NetworkPolicies in the test cluster: one process per node writes nftables rules for the node's pods.

CNI's bridge plugin enforces none. kube-network-policies needs nftables' ``queue``, which kernels of small machines lack. kube-router needs
ipset, and minutes of compilation. A few hundred lines suffice here: ``networking.k8s.io/v1`` for IPv4 and IPv6 on a pod's own network. Not
covered are further networks (Multus), and connections established before a policy.
"""
