"""The command `warren`, one file for each subcommand."""
