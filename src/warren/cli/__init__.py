"""The command `warren`, one file a subcommand."""
