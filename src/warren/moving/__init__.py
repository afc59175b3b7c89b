"""Moving in from another broker: its definitions over HTTP, its messages over AMQP."""
