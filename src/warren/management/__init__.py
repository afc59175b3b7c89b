"""The HTTP API, on aiohttp: one file for each resource; `app.py` puts them together."""
