"""Nodes, as far as virtual machines depend on them.

- ``node_reports``: which nodes do not report.
- ``emptied_nodes``: whether a Node is drained or fenced.
- ``baseline_cpu``: the best CPU model that all nodes of a pool have.

virt-controller only reads Nodes (``controller/rbac.md``), and does not talk to them.
"""
