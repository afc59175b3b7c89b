"""With a real etcd, and real brokers as processes."""
