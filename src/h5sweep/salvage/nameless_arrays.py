"""Arrays in a damaged file that have no name."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from ..disk import durable
from ..hdf5.damage.carve import Carving
from ..worker_files.file_view import Failures, Group
from .carved_datasets import CarvedVariable
from .data_gaps import FileMemory
from .write_records import save_array


def export_arrays(
    carving: Carving, groups: Sequence[Group], path: str, most_bytes: int, folder: Path | None
) -> int:
    """Count arrays of a file that nothing names; write them to `folder`, if there is one."""
    named = {id(v) for group in groups for v in group.variables.values()}
    index, count = [], 0
    stem, shared = Path(path).stem, FileMemory(carving)
    for address, carved in carving.objects.items():
        if carved.object.dataset is None or carved.parents:
            continue
        variable = CarvedVariable(carving, carved, most_bytes, shared)
        count += id(variable) not in named
        if folder is None:
            continue
        try:
            cells = variable.read(None)
        except Failures:
            continue
        offset = carving.file.superblock.start + address
        for member, cell in cells.items():
            shape = "x".join(map(str, cell.value.shape)) or "scalar"
            name = f"{stem}_{offset}_{shape}{'_' * bool(member)}{member}.npy"
            save_array(folder / name, cell.value)
            index.append({"file": name, "source": path, "header_at": offset})
    if index and folder is not None:
        text = json.dumps(index, indent=1) + "\n"
        durable.replace_text(folder / f"{stem}_index.json", text)
    return count
