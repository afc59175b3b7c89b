"""`warren cluster demo`: a cluster on one machine, whose brokers can be killed."""
