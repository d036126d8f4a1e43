"""Alembic's revisions, in order. ``vitals migrate`` applies them."""
