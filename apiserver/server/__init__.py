"""The process: options, certificates, serving, health, shutdown.

``__main__`` combines the generic server with our kinds. ``running`` is one process from its flags (``options``) to its end,
``assembly`` builds a server for any strategies, and ``serving`` its connections within the limits of ``connections``.
Parts: ``admitting``, ``policies`` (admission), ``trusting`` (authorities), ``ownership`` (field managers), ``health``,
``metrics``, ``storage``. ``dev`` is a server on loopback.

Only ``__main__``, ``options`` and the default of ``dev`` refer to virtual machines; the rest serves any kinds
(docs/own-kind.md). Encryption and the policy compiler are imported on first use.
"""
