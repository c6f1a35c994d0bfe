"""Where results come from: code, versions, host, command. Kept in the run folder and the output."""

from __future__ import annotations

import getpass
import platform
import shlex
import sys
from contextlib import suppress
from functools import cache
from glob import escape
from pathlib import Path
from typing import Any

from .process_id import host_name

PACKAGES = ("h5sweep", "numpy", "h5py")


def describe(study: Path, output: Path) -> dict[str, Any]:
    """What a reader of the output would want to know about its making."""
    about = {"python": platform.python_version(), "versions": _versions()}
    return {**_who_and_where(), **about, **_git(study.parent, output)}


def describe_command() -> dict[str, Any]:
    """The same for a command that has no study; what is loaded already is asked, nothing else."""
    h5py = sys.modules.get("h5py")
    hdf5 = {} if h5py is None else {"hdf5": str(h5py.version.hdf5_version)}
    versions = {"python": platform.python_version(), **_versions(), **hdf5}
    return {**_who_and_where(), "versions": versions}


def _who_and_where() -> dict[str, str]:
    return {
        "command": command_line(),
        "folder": str(Path.cwd()),
        "host": host_name(),
        "user": user_name(),
    }


def command_line() -> str:
    """The command that runs here, as it was typed."""
    return shlex.join(sys.argv)


@cache
def _versions() -> dict[str, str]:
    versions = {}
    for name in PACKAGES:
        if loaded := getattr(sys.modules.get(name), "__version__", None):
            versions[name] = str(loaded)  # at once; the other way reads folders
            continue
        from importlib import metadata  # which takes as long to load as a tenth of all the rest

        with suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    return versions


def user_name() -> str:
    """Who runs this; empty in a container that runs under a user id without a name."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return ""


def _git(folder: Path, output: Path) -> dict[str, Any]:
    """The study's commit, and whether it was changed since; nothing where there is no git.

    The output, what lies beside it and bytecode are not what is computed with.
    """
    if not any((above / ".git").exists() for above in (folder, *folder.parents)):
        return {}
    commit = _git_says(folder, "rev-parse", "HEAD")
    if commit is None:
        return {}
    name = escape(output.name)
    ours = [f"{name}*", f"{name}*/**", f".{name}*", "__pycache__/**"]
    others = [":(top)", *(f":(exclude,top,glob)**/{pattern}" for pattern in ours)]
    changed = _git_says(folder, "status", "--porcelain", "--", *others)
    return {"git_commit": commit, "git_dirty": bool(changed)}


def _git_says(folder: Path, *words: str) -> str | None:
    import subprocess

    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *words], capture_output=True, text=True, timeout=5
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
