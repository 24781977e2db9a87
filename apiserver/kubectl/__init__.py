"""The kubectl plugin ``kubectl-virt``, a pure client.

``commands`` parses flags (``flags``), finds the cluster as kubectl does (``access``: any ``kubeconfig``, credential plugins
included), and runs a command. ``verbs`` (start, stop, …) and ``guestinfo`` send one request; ``migrations`` shows a live
migration (``progress``) and follows it to its end (``following``). ``console`` connects a websocket (``streams``) to the
terminal (``terminal``); ``vnc`` and ``usbredir`` connect websockets to a local port (``proxy``). ``scrollback`` avoids
printing output twice after a reconnect. ``messages`` formats errors in kubectl's words. ``__main__`` is the program.

It depends only on kubernetes_asyncio (kubeconfig; it brings aiohttp) and websockets.
"""
