"""One command for each published number, with results as JSON in ``build/bench``.

Memory and processor times come from this machine's process table, because the test cluster's nodes are namespaces.
"""
