"""How a merged file whose shape was kept says that it is ours to replace."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from .h5 import h5py

MARK = "h5sweep_merged"
FORMAT = "h5sweep.merged/1"


def mark_as_merged(path: Path, audit_name: str) -> None:
    """Add to the file that h5sweep merged it, and where the audit trail is."""
    with h5py.File(path, "a", locking=False) as file:
        file.attrs[MARK] = np.bytes_(FORMAT)
        file.attrs["h5sweep_audit"] = np.bytes_(audit_name.encode())
        file.flush()
