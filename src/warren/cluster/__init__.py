"""The protocol by which stores keep copies of shards. No I/O, no clock: messages and ticks in, effects out."""
