"""A client for AMQP 0-9-1, for our tools that talk to a broker."""
