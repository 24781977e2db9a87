"""Non-operational nodes: virt-controller gives their Nodes a condition and a taint, if the administrator allows that."""
