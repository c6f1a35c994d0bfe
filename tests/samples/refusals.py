"""Runs a command where the system refuses something, as a container or another system may.

    python refusals.py limits,proc,prctl COMMAND...

    prctl    prctl(PR_SET_PDEATHSIG) fails
    limits   setrlimit fails
    proc     nothing in /proc can be opened
    death    prctl(PR_SET_PDEATHSIG) ends the process, so that no child with the library starts

The kernel refuses it, by seccomp and Landlock; neither needs any privilege.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
import sys
from pathlib import Path

_NUMBERS = {"x86_64": (157, 302), "aarch64": (167, 261)}  # of prctl and of prlimit64
_NO_NEW_PRIVILEGES, _SET_SECCOMP, _FILTER = 38, 22, 2
_LOAD, _IF_EQUAL, _RETURN = 0x20, 0x15, 0x06
_ALLOW, _REFUSE, _KILL = 0x7FFF0000, 0x00050000 | errno.EPERM, 0x80000000
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_READ_FILE = 1 << 2

_libc = ctypes.CDLL(None, use_errno=True)


def main() -> None:
    """Give up what is named, for ever, and become the command."""
    refused = set(sys.argv[1].split(","))
    _require(_libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0))
    if "proc" in refused:
        _hide_proc()
    _filter_calls(refused)
    os.execvp(sys.argv[2], sys.argv[2:])


def _filter_calls(refused: set[str]) -> None:
    prctl, prlimit = _NUMBERS[platform.machine()]
    program = [(_LOAD, 0, 0, 0)]  # the number of the call
    if "limits" in refused:
        program += [(_IF_EQUAL, 0, 1, prlimit), (_RETURN, 0, 0, _REFUSE)]
    if refused & {"prctl", "death"}:
        answer = _KILL if "death" in refused else _REFUSE
        # The call, its first argument (1 is PR_SET_PDEATHSIG), what becomes of it.
        program += [(_IF_EQUAL, 0, 3, prctl), (_LOAD, 0, 0, 16), (_IF_EQUAL, 0, 1, 1)]
        program += [(_RETURN, 0, 0, answer)]
    program += [(_RETURN, 0, 0, _ALLOW)]
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *line) for line in program))
    head = ctypes.create_string_buffer(
        struct.pack("HxxxxxxP", len(program), ctypes.addressof(code))
    )
    _require(_libc.prctl(_SET_SECCOMP, _FILTER, head, 0, 0))


def _hide_proc() -> None:
    about = struct.pack("Q", _READ_FILE)
    rules = _require(_libc.syscall(_CREATE_RULESET, about, len(about), 0))
    for path in Path("/").iterdir():
        if path.name != "proc" and path.is_dir():
            place = os.open(path, os.O_PATH)
            allowed = struct.pack("=Qi", _READ_FILE, place)
            _require(_libc.syscall(_ADD_RULE, rules, 1, allowed, 0))
            os.close(place)
    _require(_libc.syscall(_RESTRICT_SELF, rules, 0))
    os.close(rules)


def _require(answer: int) -> int:
    if answer < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return answer


if __name__ == "__main__":
    main()
