"""Write permissions of a node's virt-handler, as tables of fields by phase and role.

An attacker with a node's token cannot change other nodes' machines, a spec, or an attempt's node.
"""
