"""A reader of run folders as docs/format.md describes them. It shares no code with h5sweep."""

from __future__ import annotations

import base64
import json
import math
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np


def read_results(path: Path) -> tuple[list[tuple[int, dict, dict[str, Any]]], int]:
    """The results of a record file as (task, key, values by name), and how often it is damaged."""
    content, results, damages = path.read_bytes(), [], 0
    first = next_frame(content, 0, b"")
    mark = content[first + 48 : first + 52] if first is not None else b""
    position = 0
    while position + 64 <= len(content):
        if not is_frame(content, position, mark):
            following = next_frame(content, position + 1, mark)
            if following is None:
                return results, damages + bool(content[position:].strip(b"\0"))
            position, damages = following, damages + 1
            continue
        task, kind, size, data_size = struct.unpack_from("<QB3xIQ", content, position + 8)
        (checksum,) = struct.unpack_from("<I", content, position + 4)
        data_at = position + 64 + size + -size % 8
        end = data_at + data_size + -data_size % 8
        header, data = content[position + 64 :][:size], content[data_at : data_at + data_size]
        checked = content[position + 8 : data_at + data_size]
        if end > len(content) or zlib.crc32(checked) != checksum:
            following = next_frame(content, position + 64, mark)
            if end > len(content) and following is None:
                return results, damages
            position, damages = min(end, following or end), damages + 1
            continue
        if kind == 2:
            about = json.loads(header)
            results.append((task, about["key"], read_values(about["data"], data)))
        position = end
    return results, damages


def is_frame(content: bytes, at: int, mark: bytes) -> bool:
    frame = content[at : at + 64]
    return (
        len(frame) == 64
        and frame.startswith(b"\xabh5r")
        and frame[48:52] == (mark or frame[48:52])
        and frame[16] <= 6
        and zlib.crc32(frame[8:60]) == int.from_bytes(frame[60:], "little")
    )


def next_frame(content: bytes, at: int, mark: bytes) -> int | None:
    while (at := content.find(b"\xabh5r", at)) >= 0:
        if is_frame(content, at, mark):
            return at
        at += 1
    return None


def read_values(schema: list[Any], data: bytes) -> dict[str, Any]:
    values, at = {}, 0
    for name, dtype, shape in schema:
        count = math.prod(shape)
        if dtype == "str":
            texts = []
            for _ in range(count):
                size = int.from_bytes(data[at : at + 4], "little")
                texts.append(data[at + 4 : at + 4 + size].decode())
                at += 4 + size
            values[name] = np.array(texts, object).reshape(shape)
        else:
            values[name] = np.frombuffer(data, dtype, count, at).reshape(shape)
            at += values[name].nbytes
    assert at == len(data)
    return values


def read_plan(path: Path) -> tuple[str, list[dict[str, Any]]]:
    """The plan's id and the keys of its tasks, by number."""
    first, _, rest = path.read_bytes().partition(b"\n")
    head = json.loads(first)
    assert (head["format"], head["crc32"]) == ("h5sweep.plan/1", zlib.crc32(rest))
    columns = {}
    for line in map(json.loads, rest.splitlines()):
        kind = {"bool": bool, "int": int, "float": float, "str": str}[line["type"]]
        codes = struct.unpack(
            f"<{head['tasks']}I", zlib.decompress(base64.b64decode(line["codes"]))
        )
        columns[line["name"]] = [kind(line["values"][code]) for code in codes]
    rows = zip(*columns.values(), strict=True)
    return head["id"], [dict(zip(columns, row, strict=True)) for row in rows]
