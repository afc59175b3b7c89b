"""A simulator that drives the real protocol: one seed owns network, disks, etcd, clocks and clients."""
