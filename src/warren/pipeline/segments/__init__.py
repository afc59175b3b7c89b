"""Segments as Arrow tables: find them, plan which task reads what, decode. Needs no Spark and no Java."""
