"""The protocol by which stores keep copies of shards: messages and ticks in, effects out."""
