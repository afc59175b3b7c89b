"""The definitions of a cluster, without I/O: nodes around a model of etcd."""
