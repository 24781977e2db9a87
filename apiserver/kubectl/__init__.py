"""The kubectl plugin ``kubectl-virt``, a pure client.

``commands`` parses flags (``flags``), finds the cluster (``access``), and runs a command. ``verbs`` and ``guestinfo``
send one request; ``migrations`` shows live migrations (``progress``) to their end (``following``). ``console`` connects
a websocket (``streams``) to the terminal (``terminal``), without repeating output (``scrollback``); ``displays``,
``usbredir`` and ``portforward`` connect to a local port (``proxy``), and ``ssh`` uses it.

If a request is refused or unanswered, functions raise ``messages.Failure``, with kubectl's words for the user.
"""
