"""The kubectl plugin ``kubectl-virt``: a client and nothing more.

``commands`` reads flags (``flags``), finds the cluster as kubectl does (``access``: any ``kubeconfig``, credential plugins included), and
runs one command: ``verbs`` (start, stop, …) and ``guestinfo`` are one request; ``migrations`` shows a live migration (``progress``) and
follows it to its end (``following``); ``console`` holds a websocket (``streams``) against a terminal (``terminal``), ``vnc`` and
``usbredir`` hold some against a local port (``proxy``). A console that is dialled again prints nothing twice (``scrollback``). What a
server refuses is printed in kubectl's words (``messages``). ``__main__`` is the program.

It depends on kubernetes_asyncio (kubeconfig; it brings aiohttp) and websockets alone.
"""
