"""Run thousands of tasks in parallel, keep every finished result, get one HDF5 file.

@h5sweep.sweep declares a sweep, `h5sweep run study.py` runs it. `Recorder` keeps the results of
programs that have a pool of their own. `open` gives the output as an xarray Dataset, `check_files`
says what is wrong with HDF5 files of any program, `merge_files` makes one file of them, and
`salvage_files` gets the results out of damaged ones.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from . import errors

if TYPE_CHECKING:
    from .api import Sweep, sweep
    from .api import open_output as open  # h5sweep.open reads well, and nothing here opens a file
    from .check.check import check_files
    from .check.report import CheckReport
    from .merge.merge_files import merge_files
    from .merge.policy import OnDamaged, Policy, Threshold
    from .merge.report import FilesReport
    from .runner.recorder import Recorder
    from .salvage.report import SalvageReport
    from .salvage.salvage import salvage_files
    from .worker_files.findings import Finding
    from .worker_files.inputs import OnConflict

__version__ = "0.1.0"

__all__ = [
    "CheckReport",
    "FilesReport",
    "Finding",
    "OnConflict",
    "OnDamaged",
    "Policy",
    "Recorder",
    "SalvageReport",
    "Sweep",
    "Threshold",
    "check_files",
    "errors",
    "merge_files",
    "open",
    "salvage_files",
    "sweep",
]

# Imported when first used: the command line starts without them.
_PLACES = {
    "CheckReport": ("check.report", "CheckReport"),
    "FilesReport": ("merge.report", "FilesReport"),
    "Finding": ("worker_files.findings", "Finding"),
    "OnConflict": ("worker_files.inputs", "OnConflict"),
    "OnDamaged": ("merge.policy", "OnDamaged"),
    "Policy": ("merge.policy", "Policy"),
    "Recorder": ("runner.recorder", "Recorder"),
    "SalvageReport": ("salvage.report", "SalvageReport"),
    "Sweep": ("api", "Sweep"),
    "Threshold": ("merge.policy", "Threshold"),
    "check_files": ("check.check", "check_files"),
    "merge_files": ("merge.merge_files", "merge_files"),
    "open": ("api", "open_output"),
    "salvage_files": ("salvage.salvage", "salvage_files"),
    "sweep": ("api", "sweep"),
}


def __getattr__(name: str) -> object:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, attribute = _PLACES[name]
    value = globals()[name] = getattr(import_module(f".{module}", __name__), attribute)
    return value
