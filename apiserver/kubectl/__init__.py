"""The kubectl plugin ``kubectl-virt``: a client and nothing more.

``__main__`` reads flags (``flags``), finds the cluster as kubectl does (``access``: any kubeconfig, credential plugins included), and
runs one command: ``verbs`` (start, stop, …) are one request; ``console`` and ``vnc`` hold a websocket (``streams``) against a terminal
(``terminal``) or a local port. What a server refuses is printed in kubectl's words (``messages``).

It depends on kubernetes_asyncio (kubeconfig; it brings aiohttp) and websockets alone.
"""
