"""Output files, written whole or not at all."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from ioweave.diagrams.errors import WeaveError


def check_output(path: str, endings: tuple[str, ...]) -> str:
    """The ending of an output path, without its dot.

    Raises WeaveError for an ending that is not known, and for a folder that is missing or closed,
    before any work is done.
    """
    target = Path(path)
    ending = target.suffix.removeprefix(".").lower()
    if target.is_dir():
        raise WeaveError(f"{path} is a directory; give the name of a file in it")
    if ending not in endings:
        wanted = " or ".join(f".{e}" for e in endings)
        raise WeaveError(f"{path}: the name of the output ends in {wanted}, which chooses its format")
    folder = target.parent
    if not folder.is_dir():
        raise WeaveError(f"cannot write {path}: there is no directory {folder}")
    if not os.access(folder, os.W_OK) or (target.exists() and not os.access(target, os.W_OK)):
        raise WeaveError(f"cannot write {path}: permission denied")
    return ending


def write_whole(path: str, data: bytes) -> None:
    """Write a file beside its place and move it there. Raises WeaveError where that cannot be done."""
    target = Path(path)
    temporary: str | None = None
    try:
        handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.chmod(temporary, _mode(target))
        os.replace(temporary, target)
        temporary = None
    except OSError as error:
        raise WeaveError(f"cannot write {path}: {(error.strerror or str(error)).lower()}") from None
    finally:
        if temporary is not None and os.path.exists(temporary):
            os.unlink(temporary)


def _mode(target: Path) -> int:
    """The mode of the file that is replaced, or that of a new one."""
    if target.exists():
        return target.stat().st_mode & 0o777
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask
