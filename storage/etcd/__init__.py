"""The storage port over etcd (3.5.13 or later; earlier ones answer progress requests wrongly).

``store`` keeps the promises of the port, ``watching`` is one watch with its reconnections, ``connection`` picks an endpoint and
re-reads certificates, ``failures`` translates what gRPC raises, ``rpc`` holds the messages. gRPC is named nowhere else: it costs
17 MB of memory in the process that imports it.
"""
