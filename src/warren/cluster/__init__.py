"""The protocol by which nodes are one cluster, without I/O and clock: messages and ticks in, effects out."""
