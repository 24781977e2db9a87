"""Nodes, as far as virtual machines depend on them.

``node_reports`` says which nodes are silent, ``emptied_nodes`` which are being emptied, ``baseline_cpu`` the best CPU
that all nodes of a pool have. Nodes are only read: virt-controller has no right to write one (``controller/rbac.md``), and
talks to none.
"""
