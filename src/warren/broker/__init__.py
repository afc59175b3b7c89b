"""The model: vhosts, exchanges, queues, consumers and the sessions that use them. No I/O, no clock."""
