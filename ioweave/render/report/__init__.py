"""Reports as text for people."""

from __future__ import annotations

from ioweave.render.report.page import on_screen, text

__all__ = ["on_screen", "text"]
