"""Fencing: virt-controller has a silent node switched off by the administrator's fence agent, and states that the node is off.

- ``fencing_plan``: whether to fence or to unfence a node. Pure.
- ``fence_agent``: runs the administrator's executable.
- ``reconciler``: the loop.
"""
