"""Real text for the models that have a tokenizer: this project's own pages."""

from __future__ import annotations

import functools
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGES = ("README.md", "docs/lifecycle.md", "docs/sessions.md", "docs/stopping.md", "docs/errors.md", "docs/budgets.md")


@functools.cache
def story() -> str:
    """Some ten thousand words of English, the same ones for one state of the tree."""
    return "\n".join((ROOT / page).read_text() for page in PAGES if (ROOT / page).exists())
