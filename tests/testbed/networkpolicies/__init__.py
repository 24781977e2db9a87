"""Enforcement of NetworkPolicies in the test cluster: a process of each node that writes nftables rules for the node's pods.

The bridge plugin of CNI enforces none. Of the engines that can be built from Go modules, kube-network-policies hands packets to a
program (``queue`` of nftables, which the kernels of small machines lack), and kube-router wants ipset, and minutes of the compiler from
an empty cache. A few hundred lines serve a test cluster: ``networking.k8s.io/v1`` as its reference has it, for IPv4 and IPv6, of a pod's
own network. Not of further networks (Multus), and not of connections that a policy finds established.

``ruleset`` is pure: from pods, namespaces and policies to one nftables script. ``following`` keeps copies of them by watching
kube-apiserver, ``engine`` loads the script whenever it changed. Only the standard library is imported, as in all of the test bed.
"""
