"""The definitions that all nodes of a cluster share, in etcd and in each node's model."""
