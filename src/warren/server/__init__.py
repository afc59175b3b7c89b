"""The broker on an event loop: sockets, timers, threads, configuration and the log."""
