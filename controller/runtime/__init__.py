"""A small controller-runtime: the building blocks of reconcile loops. It has no code for virtual machines.

An informer's callback enqueues an object's key (a ``Request``), and the loop calls a ``Reconciler`` with it until it succeeds. Start with
``reconciling`` (the loop, and how it handles errors), then ``workqueue`` (one call per object at a time; growing pauses) and ``validating``
(only valid objects reach the reconciler).

``leaderelection`` selects one of several processes, ``recorder`` writes Events, limited by ``flowcontrol``, and ``clock`` is wall time as a
port. virt-controller's and virt-handler's loops use this package.
"""
