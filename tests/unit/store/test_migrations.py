"""Migrations are one chain in the order of their file names: two that were written side by side are noticed before they meet a database."""

from __future__ import annotations

from pathlib import Path

from alembic.script import ScriptDirectory

from monitor.store import database


def test_migrations_are_one_chain_in_the_order_of_their_names() -> None:
    scripts = ScriptDirectory.from_config(database.alembic_config())
    chain = [script.revision for script in scripts.walk_revisions()][::-1]
    files = sorted(path.name for path in Path(scripts.versions).glob("0*.py"))
    assert chain == [name.partition("_")[0] for name in files]
