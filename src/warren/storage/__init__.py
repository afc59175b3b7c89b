"""Files: the segment log, acknowledgements, one group commit for all, definitions, and recovery."""
