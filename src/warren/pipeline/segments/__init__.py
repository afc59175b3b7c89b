"""Segments as Arrow tables: finding them, planning who reads what, decoding. Needs no Spark and no Java."""
