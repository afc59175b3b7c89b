"""A client's side of AMQP 0-9-1, for the tools that talk to a broker."""
