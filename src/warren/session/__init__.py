"""The sessions of clients: a client's connection, its channels, and the methods that it calls on them."""
