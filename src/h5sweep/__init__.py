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
    from .check import check_files
    from .check_report import CheckReport
    from .files_report import FilesReport
    from .findings import Finding
    from .inputs import OnConflict
    from .join import merge_files
    from .policy import OnDamaged, Policy, Threshold
    from .recorder import Recorder
    from .salvage import salvage_files
    from .salvage_report import SalvageReport

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
    "CheckReport": ("check_report", "CheckReport"),
    "FilesReport": ("files_report", "FilesReport"),
    "Finding": ("findings", "Finding"),
    "OnConflict": ("inputs", "OnConflict"),
    "OnDamaged": ("policy", "OnDamaged"),
    "Policy": ("policy", "Policy"),
    "Recorder": ("recorder", "Recorder"),
    "SalvageReport": ("salvage_report", "SalvageReport"),
    "Sweep": ("api", "Sweep"),
    "Threshold": ("policy", "Threshold"),
    "check_files": ("check", "check_files"),
    "merge_files": ("join", "merge_files"),
    "open": ("api", "open_output"),
    "salvage_files": ("salvage", "salvage_files"),
    "sweep": ("api", "sweep"),
}


def __getattr__(name: str) -> object:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, attribute = _PLACES[name]
    value = globals()[name] = getattr(import_module(f".{module}", __name__), attribute)
    return value
