"""Durations, sizes and counts as people write and read them."""

from __future__ import annotations

import re
import shlex
import time
from pathlib import Path

from ..errors import UsageError

SECONDS = {"": 1, "s": 1, "min": 60, "m": 60, "h": 3600, "d": 86400}
BYTES = {"": 1, "B": 1, "kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12}
BYTES |= {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
_NUMBER = r"(\d+(?:\.\d+)?)"


def parse_duration(text: str) -> float:
    """`90`, `90s`, `20min`, `1h30min` in seconds."""
    compact = re.sub(r"\s", "", text)
    parts = re.findall(_NUMBER + r"([a-z]*)", compact)
    known = all(unit in SECONDS for _, unit in parts)
    if not parts or not known or "".join(map("".join, parts)) != compact:
        raise UsageError(f"{text!r} is not a duration: write 90s, 20min or 1h30min")
    return sum(float(number) * SECONDS[unit] for number, unit in parts)


def parse_size(text: str) -> int:
    """`500MB`, `2GB`, `4GiB` in bytes."""
    match = re.fullmatch(_NUMBER + r"\s*([A-Za-z]*)", text.strip())
    if match is None or match[2] not in BYTES:
        raise UsageError(f"{text!r} is not a size: write 500MB, 2GB or 4GiB")
    return int(float(match[1]) * BYTES[match[2]])


def duration_text(seconds: float) -> str:
    """A duration as people say it: `45 s`, `51 min`, `3 h 20 min`, `2 d 4 h`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 90:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    days, hours = divmod(hours, 24)
    return f"{days} d {hours} h" if hours else f"{days} d"


def clock_text(at: float) -> str:
    """A time to come as people say it: `17:32`, on another day `Fri 17:32` or `3 Dec`."""
    there, here = time.localtime(at), time.localtime()
    if there[:3] == here[:3]:
        return time.strftime("%H:%M", there)
    if at - time.time() < 6 * 86400:
        return time.strftime("%a %H:%M", there)
    return f"{there.tm_mday} {time.strftime('%b', there)}"


def rate_text(per_s: float) -> str:
    """A rate as people say it: `21/s`, `40/min`, `2.5/h`."""
    per_unit, unit = per_s, "s"
    if per_s < 1:
        per_unit, unit = (per_s * 60, "min") if per_s * 60 >= 1 else (per_s * 3600, "h")
    number = f"{per_unit:,.0f}" if per_unit >= 10 else f"{per_unit:.1f}".removesuffix(".0")
    return f"{number}/{unit}"


def size_text(size_bytes: int) -> str:
    """A size as people say it: `1.2 GB`."""
    for unit in ("GB", "MB", "kB"):
        if size_bytes >= BYTES[unit]:
            return f"{size_bytes / BYTES[unit]:.1f} {unit}"
    return f"{size_bytes} bytes"


def count_text(number: int, noun: str) -> str:
    """A count as people say it: `1 task`, `2,431 tasks`."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def command_text(*words: object) -> str:
    """A command that can be pasted, whatever is in its paths: `h5sweep clean 'my out.h5'`."""
    return shlex.join(["h5sweep", *map(str, words)])


def near_path(path: Path) -> Path:
    """A path as it is best written here: from the current folder, if it is below that."""
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path


def cut_end(text: str, width: int) -> str:
    """`text` in at most `width` characters: its beginning, and … if that is not all."""
    return text if len(text) <= width else f"{text[: max(width - 1, 0)]}…"


def cut_middle(text: str, width: int) -> str:
    """`text` in at most `width` characters: its beginning, …, its end."""
    if len(text) <= width:
        return text
    tail = (width - 1) // 2
    return text[: width - 1 - tail] + "…" + text[len(text) - tail :]
