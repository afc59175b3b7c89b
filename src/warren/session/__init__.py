"""A client's side of the broker: its connection, its channels, and the methods it calls on them."""
