"""``python -m ioweave``."""

from __future__ import annotations

from ioweave.cli import main

if __name__ == "__main__":
    main()
