"""Write permissions of a node's virt-handler, as tables of fields by phase and role."""
