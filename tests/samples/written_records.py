"""Record files as workers and recorders write them, without a run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

from h5sweep.base.plan import Plan, key_json
from h5sweep.base.values import ResultEncoder, result_header
from h5sweep.runfolder.layout import RunFolder
from h5sweep.runfolder.records import RecordKind, RecordWriter, json_bytes

NOW = 1_700_000_000.0

RECORD_CODE = """
import sys
import numpy as np
import h5sweep

with h5sweep.Recorder(sys.argv[1]) as recorder:
    for seed, result in eval(sys.argv[2]).items():
        recorder.write({"seed": seed}, **result)
"""
SOME = "{seed: {'x': seed / 3, 'layout': np.full((seed %% 3, 2), seed)} for seed in range(%d, %d)}"


def write_records(folder: RunFolder, plan: Plan, results: dict[int, dict[str, Any]]) -> Path:
    """Record these results as a worker does, in one new record file."""
    folder.create()
    folder.save_plan(plan)
    path = folder.new_record_path("worker")
    writer = RecordWriter(path, about={"plan": plan.id})
    encoder = ResultEncoder(plan.names)
    for task, result in results.items():
        schema, data = encoder.encode(result)
        header = result_header(schema, key_json(plan.key(task)).encode())
        writer.append(
            RecordKind.DONE, task, header, data, finished_at=NOW + task, duration_s=task / 2
        )
    writer.close()
    return path


def write_failure(folder: RunFolder, plan: Plan, task: int, **error: str) -> None:
    """Record that a task raised."""
    writer = RecordWriter(folder.new_record_path("worker"), about={"plan": plan.id})
    about = {"type": "ValueError", "message": "", "where": "", "traceback": ""} | error
    header = json_bytes({"error": about, "key": plan.key(task)})
    writer.append(RecordKind.RAISED, task, header, finished_at=NOW, duration_s=1.5)
    writer.close()


def write_scattered(folder: RunFolder, plan: Plan, workers: int) -> None:
    """Record results and failures of many workers: of 11 tasks one never ran, and two failed."""
    folder.create()
    folder.save_plan(plan)
    encoder = ResultEncoder(plan.names)
    schema, data = encoder.encode({"x": 1.0})
    about = {"type": "ValueError", "message": "no", "where": "", "traceback": ""}
    paths = [folder.new_record_path("worker") for _ in range(workers)]
    writers = [RecordWriter(path, about={"plan": plan.id}) for path in paths]
    for task in range(len(plan)):
        kind, header = RecordKind.DONE, result_header(schema, key_json(plan.key(task)).encode())
        if task % 11 in (3, 6):
            kind, header = RecordKind.RAISED, json_bytes({"error": about, "key": plan.key(task)})
        if task % 11 != 9:
            content = data if kind == RecordKind.DONE else b""
            append = writers[task // 3 % workers].append
            append(kind, task, header, content, finished_at=NOW + task, duration_s=workers)
    for writer in writers:
        writer.close()


def record(folder: RunFolder, results: str) -> Path:
    """Write results from a process that has ended; return its record file."""
    before = set(folder.record_paths())
    subprocess.run([sys.executable, "-c", RECORD_CODE, folder.output, results], check=True)
    (path,) = set(folder.record_paths()) - before
    return path
