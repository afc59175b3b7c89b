"""Shows the result of a job, as text in a terminal and as a page with plots. Nothing here needs Spark."""
