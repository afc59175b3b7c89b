"""A checker of what clients saw while a cluster had faults: histories, checks, workload and faults."""
