from __future__ import annotations

import pytest

from docs.generate import HERE, PAGES


@pytest.mark.parametrize("name", PAGES)
def test_generated_page_is_current(name: str) -> None:
    assert (HERE / name).read_text() == PAGES[name](), f"docs/{name} is stale; run `make docs`"
