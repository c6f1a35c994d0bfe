"""Arrays in a damaged file that have no name."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from ..disk import durable
from ..hdf5.damage.carve import Carving
from ..worker_files.file_view import Failures
from .carved_datasets import CarvedVariable
from .data_gaps import FileMemory


def export_arrays(carving: Carving, shared: FileMemory, path: str, folder: Path | None) -> int:
    """Count arrays that nothing names, which are all that `carving` has kept, and write them."""
    if folder is not None:
        _write_arrays(carving, shared, path, folder)
    return len(carving.objects)


def _write_arrays(carving: Carving, shared: FileMemory, path: str, folder: Path) -> None:
    index, stem = [], Path(path).stem
    for address, carved in carving.objects.items():
        try:
            cells = CarvedVariable(carved, shared).read(None)
        except Failures:
            continue
        offset = carving.file.superblock.start + address
        for member, cell in cells.items():
            shape = "x".join(map(str, cell.value.shape)) or "scalar"
            name = f"{stem}_{offset}_{shape}{'_' * bool(member)}{member}.npy"
            durable.make_folder(folder)
            with durable.replacing(folder / name) as temporary, temporary.open("wb") as file:
                np.save(file, cell.value, allow_pickle=False)
            index.append({"file": name, "source": path, "header_at": offset})
    if index:
        text = json.dumps(index, indent=1) + "\n"
        durable.replace_text(folder / f"{stem}_index.json", text)
