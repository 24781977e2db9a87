"""controller-runtime in miniature: work queue, reconcile loop, leader election, events. Knows nothing of virtual machines."""
