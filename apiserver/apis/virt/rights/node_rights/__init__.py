"""Write permissions of a node's virt-handler, as tables of fields by phase and role.

An attacker with a node's token can change only what runs on that node: not other nodes' machines, nor a spec, nor an attempt's node.
"""
