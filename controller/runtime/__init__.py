"""controller-runtime in miniature: what loops are made of that reconcile each object of a kind. Knows nothing of virtual machines.

In go names of objects (a ``Request``, which an informer's callback has enqueued) and a ``Reconciler``; out come calls of it, again until
one succeeds. To be read first: ``reconciling`` (the loop, and what an error makes of a request), then ``workqueue`` (never twice at once
for one object; pauses that grow) and ``validating`` (only objects of sound shape get to the reconciler).

Beside the loop: ``leaderelection`` (of several processes one acts), ``recorder`` (Events, bounded by ``flowcontrol``), and ``clock``, which
is wall time as a port. virt-controller's loops and virt-handler's are made of it.
"""
