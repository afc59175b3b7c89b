"""The protocol by which nodes are one cluster. No I/O and no clock: messages and answers in, effects out."""
