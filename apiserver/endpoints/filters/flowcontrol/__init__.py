"""API priority and fairness (KEP-1040): requests get seats by priority level, and within a level every flow gets its share.

* :mod:`configuration`: FlowSchemas and PriorityLevelConfigurations of the cluster, as data, and which of them a request belongs to;
* :mod:`borrowing`: how many seats each level has, from its demand;
* :mod:`levels`: the seats of one level, and the fair queues for them;
* :mod:`control`: the limiter that the chain asks.
"""
