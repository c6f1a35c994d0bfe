"""Read the files of a run folder: written from docs/format.md by one who never saw the code."""

import base64
import json
import re
import struct
import zlib
from io import BytesIO
from itertools import pairwise
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

MAGIC = rb"\xabh5r"
DONE, LAST_KIND = 2, 6


def _crc(part: bytes) -> bytes:
    return zlib.crc32(part).to_bytes(4, "little")


def _frames(file: bytes) -> list[int]:
    """Return where the sound frames with the file's mark and a known kind begin, lowest first."""
    starts = [found.start() for found in re.finditer(MAGIC, file[:-60])]
    sound = [at for at in starts if _crc(file[at + 8 : at + 60]) == file[at + 60 : at + 64]]
    marked = [at for at in sound if file[at + 48 : at + 52] == file[sound[0] + 48 : sound[0] + 52]]
    return [at for at in marked if file[at + 16] <= LAST_KIND]


def _array(data: BytesIO, dtype: str, shape: list[int]) -> Any:
    """Read the next value of a result."""
    if dtype == "str":
        texts = [data.read(int.from_bytes(data.read(4), "little")) for _ in range(prod(shape))]
        return np.array([text.decode() for text in texts], dtype=object).reshape(shape)
    elements = data.read(prod(shape) * np.dtype(dtype).itemsize)
    return np.frombuffer(elements, dtype).reshape(shape)


def read_results(path: Path) -> tuple[list[tuple[int, dict, dict[str, Any]]], int]:
    """Return (task, key, arrays) of every sound result in file order, and the number of damages."""
    file = path.read_bytes()
    results, damages, position = [], 0, 0
    for at, behind in pairwise([*_frames(file), len(file)]):
        if at < position:
            continue  # it lies in the data of a sound record
        damages += at > position
        task, kind, header_size, data_size = struct.unpack_from("<QB3xIQ", file, at + 8)
        header_end = at + 64 + header_size
        data_at = header_end + -header_size % 8
        data_end = data_at + data_size
        position = data_end + -data_size % 8
        if position > len(file):
            damages += behind < len(file)
            position = behind
        elif _crc(file[at + 8 : data_end]) != file[at + 4 : at + 8]:
            damages += 1
            position = min(behind, position)
        elif kind == DONE:
            header = json.loads(file[at + 64 : header_end])
            data = BytesIO(file[data_at:data_end])
            arrays = {name: _array(data, dtype, shape) for name, dtype, shape in header["data"]}
            results.append((task, header["key"], arrays))
    damages += len(file) - position >= 64 and any(file[position:])
    return results, damages


def read_plan(path: Path) -> tuple[str, list[dict[str, Any]]]:
    """Return the plan's id and the keys of its tasks by number."""
    first_line, _, rest = path.read_bytes().partition(b"\n")
    plan = json.loads(first_line)
    if zlib.crc32(rest) != plan["crc32"]:
        raise ValueError(f"{path}: the checksum is wrong")
    keys: list[dict[str, Any]] = [{} for _ in range(plan["tasks"])]
    for line in rest.split(b"\n")[:-1]:
        parameter = json.loads(line)
        codes = np.frombuffer(zlib.decompress(base64.b64decode(parameter["codes"])), "<u4")
        values = parameter["values"]
        if parameter["type"] == "float":
            values = [float(value) for value in values]
        for key, code in zip(keys, codes, strict=True):
            key[parameter["name"]] = values[code]
    return plan["id"], keys
