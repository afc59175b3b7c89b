"""What a job found out, as a table in a terminal and as a page with plots. Nothing here needs Spark."""
