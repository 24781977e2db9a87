"""A small controller-runtime: the building blocks of reconcile loops. It has no code for virtual machines.

An informer's callback enqueues an object's key (a ``Request``), and the loop calls a ``Reconciler`` with it until it succeeds. Start with
``reconciling``, then ``workqueue`` and ``validating``. virt-controller's and virt-handler's loops use this package.
"""
