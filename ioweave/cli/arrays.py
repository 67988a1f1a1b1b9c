"""Arrays in and out: .npz files, read without pickles, written whole."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any
from zipfile import BadZipFile

from ioweave.diagrams.errors import WeaveError
from ioweave.render.writers.files import write_whole


def read_arrays(path: str) -> dict[str, Any]:
    """The numeric arrays of an .npz file by name. Raises WeaveError, one line."""
    import numpy as np

    try:
        loaded = np.load(path, allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            raise WeaveError(f"{path} holds a single array; save the inputs by name, with np.savez(path, Q=Q)")
        with loaded as file:
            arrays = {name: file[name] for name in file.files}
    except OSError as error:
        raise WeaveError(f"cannot read {path}: {(error.strerror or str(error)).lower()}") from None
    except (ValueError, BadZipFile, EOFError, KeyError):
        raise WeaveError(f"{path} is not an .npz file of plain arrays; write one with np.savez") from None
    for name, array in arrays.items():
        if array.dtype.kind not in "biuf":
            raise WeaveError(f"{path}: {name} holds {array.dtype}; inputs are numbers or bools")
        if array.dtype.kind == "f":
            arrays[name] = array.astype(float)
    return arrays


def save_arrays(path: str, arrays: Mapping[str, Any]) -> None:
    """Write arrays by name to an .npz file, whole or not at all."""
    import numpy as np

    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)
    write_whole(path, buffer.getvalue())
