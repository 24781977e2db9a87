"""API priority and fairness (KEP-1040): priority levels have seats, and the flows of a level share them fairly.

* :mod:`configuration`: the cluster's FlowSchemas and PriorityLevelConfigurations as data, and which of them match a
  request;
* :mod:`borrowing`: the number of seats of each level, from its demand;
* :mod:`levels`: the seats and the fair queues of one level;
* :mod:`control`: the limiter that the chain uses.
"""
