"""A cluster on an event loop: etcd, the definitions that it holds, and the nodes that are in it."""
