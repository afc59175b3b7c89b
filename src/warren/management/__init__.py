"""The HTTP API, on aiohttp, and what belongs to it. A file a resource; `app.py` puts them together."""
