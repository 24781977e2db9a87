"""The process: options, certificates, serving, health, shutdown.

Start with ``__main__``, which combines the generic server with our kinds. ``running`` is one process from its flags
(``options``, ``compatibility``) to its end, ``assembly`` builds a server for any strategies, and ``serving`` its
connections, limited by ``connections``. Further parts: ``admitting``, ``policies`` (admission), ``fairness`` (flow
control), ``trusting`` (authorities), ``ownership`` (field managers), ``health``, ``metrics``, ``process``, ``log``, and the
packages ``storage``, ``audit`` and ``tracing``. ``dev`` is a server on loopback.

Only ``__main__``, ``options`` and the default of ``dev`` refer to virtual machines; the rest can serve other kinds
(docs/own-kind.md). Optional parts are imported on first use: encryption, the policy compiler, tracing.
"""
