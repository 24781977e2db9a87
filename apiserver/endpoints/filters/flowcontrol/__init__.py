"""API priority and fairness (KEP-1040): priority levels have seats, shared fairly by their flows.

* :mod:`configuration`: FlowSchemas and PriorityLevelConfigurations, and which of them match a request;
* :mod:`borrowing`: seats of each level by demand;
* :mod:`levels`: seats and fair queues of one level;
* :mod:`control`: the limiter for the chain.
"""
