"""The wire: frames, methods, field tables and properties of AMQP 0-9-1. No I/O."""
