"""Run thousands of tasks in parallel, keep every finished result, get one HDF5 file.

@h5sweep.sweep declares a sweep, `h5sweep run study.py` runs it. `Recorder` keeps the results of
programs that have their own pool. `open` returns the output as an xarray Dataset, `to_grid` and
`to_dataframe` make a grid over the parameters or a table of it; `read_status`,
`read_missing`, `read_plan`, `read_task` and `read_audit` say what is there, what is not, and where
it is from.
`redo_tasks` has finished tasks run again, and `cancel_redo` has them not.
`check_files` says what is wrong with HDF5 files of any program, `merge_files` makes one file of
them, and `salvage_files` gets the results out of damaged ones. `find_removable` says which files
are safe to remove then, and `quarantine_files` moves them aside. `verify_output` and `replay_task`
compute rows again with the code that made them.

What `__all__` names is public, and `docs/python.md` says what it does. Every module below this
package, but `errors`, is private: it may change without notice.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from . import errors

if TYPE_CHECKING:
    from .api import Sweep, sweep
    from .api import open_output as open  # h5sweep.open reads well, and nothing here opens a file
    from .base.plan import Plan
    from .check.check import check_files
    from .check.report import CheckReport
    from .clean.clean_files import purge_quarantine, quarantine_files, restore_quarantine
    from .clean.removable_files import find_removable
    from .clean.report import CleanReport, Purged
    from .clean.restore import Restored
    from .merge.merge_files import merge_files
    from .merge.policy import OnDamaged, Policy, Threshold
    from .merge.report import FilesReport
    from .output.grid import to_dataframe, to_grid
    from .report.write_report import write_report
    from .runfolder.audit import AuditTrail, read_audit
    from .runner.recorder import Recorder
    from .runner.replay import replay_task, verify_output
    from .runner.replay_report import Replay, Verification
    from .runner.run import RunReport
    from .runner.show_task import read_task
    from .runner.status import Status, read_status
    from .runner.task_report import TaskReport
    from .salvage.report import SalvageReport
    from .salvage.salvage import salvage_files
    from .state.expected_tasks import read_plan
    from .state.missing_report import MissingReport, read_missing
    from .state.redo_tasks import RedoReport, cancel_redo, redo_tasks
    from .state.state import Missing
    from .worker_files.findings import Finding
    from .worker_files.inputs import OnConflict

__version__ = "0.1.0"

__all__ = [
    "AuditTrail",
    "CheckReport",
    "CleanReport",
    "FilesReport",
    "Finding",
    "Missing",
    "MissingReport",
    "OnConflict",
    "OnDamaged",
    "Plan",
    "Policy",
    "Purged",
    "Recorder",
    "RedoReport",
    "Replay",
    "Restored",
    "RunReport",
    "SalvageReport",
    "Status",
    "Sweep",
    "TaskReport",
    "Threshold",
    "Verification",
    "cancel_redo",
    "check_files",
    "errors",
    "find_removable",
    "merge_files",
    "open",
    "purge_quarantine",
    "quarantine_files",
    "read_audit",
    "read_missing",
    "read_plan",
    "read_status",
    "read_task",
    "redo_tasks",
    "replay_task",
    "restore_quarantine",
    "salvage_files",
    "sweep",
    "to_dataframe",
    "to_grid",
    "verify_output",
    "write_report",
]

# Imported when first used: the command line starts without them.
_MODULES = {
    "api": "Sweep open sweep",
    "base.plan": "Plan",
    "check.check": "check_files",
    "check.report": "CheckReport",
    "clean.clean_files": "purge_quarantine quarantine_files restore_quarantine",
    "clean.removable_files": "find_removable",
    "clean.report": "CleanReport Purged",
    "clean.restore": "Restored",
    "merge.merge_files": "merge_files",
    "merge.policy": "OnDamaged Policy Threshold",
    "merge.report": "FilesReport",
    "output.grid": "to_dataframe to_grid",
    "report.write_report": "write_report",
    "runfolder.audit": "AuditTrail read_audit",
    "runner.recorder": "Recorder",
    "runner.replay": "replay_task verify_output",
    "runner.replay_report": "Replay Verification",
    "runner.run": "RunReport",
    "runner.show_task": "read_task",
    "runner.status": "Status read_status",
    "runner.task_report": "TaskReport",
    "salvage.report": "SalvageReport",
    "salvage.salvage": "salvage_files",
    "state.expected_tasks": "read_plan",
    "state.missing_report": "MissingReport read_missing",
    "state.redo_tasks": "RedoReport cancel_redo redo_tasks",
    "state.state": "Missing",
    "worker_files.findings": "Finding",
    "worker_files.inputs": "OnConflict",
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names.split()}


def __getattr__(name: str) -> object:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = import_module(f".{_MODULE_OF[name]}", __name__)
    value = globals()[name] = getattr(module, "open_output" if name == "open" else name)
    return value
