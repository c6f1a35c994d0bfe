"""Let a part join the sweep of a run folder: the first declares it, the others find it declared."""

from __future__ import annotations

import errno
import random
import time

from ..base.near_floats import with_values_of
from ..base.plan import Plan
from ..code.changes import change_texts
from ..code.store import load_versions
from ..code.version import CodeVersion
from ..errors import ChangedStudyError, LockedError, StorageError
from ..runfolder.heartbeat import BeatWatch, read_beat
from ..runfolder.layout import RunFolder
from ..runfolder.lock import ALONE, DECLARING, RUNNING, holding_folder, work_in
from ..runfolder.parts import live_part, read_parts
from ..runfolder.uniform_records import scan_stretches
from .code_change import OnChange, way_to_same_code
from .declare_sweep import Tell, declare_sweep, require_labels_known
from .expected_tasks import declared_by
from .state import FolderState, read_state
from .study import Declaration
from .tasks_in_output import held_tasks

LOOK_EVERY_S = 0.1
PATIENCE_S = 5.0  # to write plan and code takes less
MOST_COLLISIONS = 10


def join_sweep(
    folder: RunFolder,
    declaration: Declaration,
    version: CodeVersion,
    part: str,
    tell: Tell,
    on_change: OnChange | None = None,
) -> FolderState:
    """The state of the sweep, once plan and code on disk are those of this part.

    The lock is held only by who has to write them, so that a thousand parts may start at once.
    LockedError if a run has the folder, ChangedStudyError if parts or results there are of other
    code: that which is declared first counts.
    """
    require_labels_known(folder, version)
    lock = _LockWatch(folder, tell)
    while lock.is_held_alone() or not _is_declared(folder, declaration, version):
        try:
            with holding_folder(folder, tell=tell, work=DECLARING):
                require_same_code(folder, version, tell)
                choice = on_change or OnChange.STOP
                return declare_sweep(folder, declaration, version, tell, choice, part)
        except LockedError as error:
            lock.wait(error)
        except StorageError as error:
            lock.wait_for_others(error)
    return read_state(folder, folder.load_plan() or Plan(()), scan=scan_stretches)


class _LockWatch:
    """Whether a part may wait for the lock: a run has it for long, everybody else for a while."""

    def __init__(self, folder: RunFolder, tell: Tell) -> None:
        self._path = folder.lock_path
        self._tell = tell
        self._beats = BeatWatch()
        self._has_told = False
        self._begun = time.monotonic()
        self._collisions = 0

    def is_held_alone(self) -> bool:
        """Whether somebody has it who no part may work beside, or had it and died."""
        return work_in(read_beat(self._path)) in (RUNNING, ALONE)

    def wait(self, refusal: LockedError) -> None:
        """Wait a moment, after that refusal; raise it if a run has the lock.

        The run may be dead, and who has the lock watches whether it is. So do we.
        """
        content = read_beat(self._path)
        if work_in(content) == RUNNING and self._beats.is_alive("lock", content):
            raise refusal
        is_slow = time.monotonic() - self._begun > PATIENCE_S
        if (is_slow or work_in(content) != DECLARING) and not self._has_told:
            self._tell(f"{refusal}. Waiting")
            self._has_told = True
        time.sleep(LOOK_EVERY_S)  # nothing tells when it is done

    def wait_for_others(self, refusal: StorageError) -> None:
        """Wait a moment if a temporary file was gone, after that refusal; raise any other.

        sshfs gives a lock to each of two hosts. Both then write the same, and may remove what the
        other is about to rename.
        """
        self._collisions += 1
        if refusal.errno != errno.ENOENT or self._collisions > MOST_COLLISIONS:
            raise refusal
        time.sleep(random.uniform(0, self._collisions * LOOK_EVERY_S))


def _is_declared(folder: RunFolder, declaration: Declaration, version: CodeVersion) -> bool:
    """Whether everything that a part would write is there already."""
    plan, sweep = folder.load_plan(), folder.load_sweep()
    if plan is None or sweep.get("code_id") != version.id:
        return False
    wanted, _ = with_values_of(plan, declaration.plan)
    if plan.types != wanted.types or len(plan.extended(wanted)[0]) > len(plan):
        return False
    known = {name: sweep.get(name) for name in ("declared", "name", "units", "dims", "coords")}
    return known == {
        "declared": declared_by(declaration.name, plan, wanted).as_json(),
        "name": declaration.name,
        "units": declaration.units,
        "dims": declaration.dims,
        "coords": declaration.coords,
    } and (held_tasks(folder, plan).described is None)


def require_same_code(folder: RunFolder, version: CodeVersion, tell: Tell) -> None:
    """Raise ChangedStudyError if a part is at work with the code declared, and that is other code.

    Only who holds the lock asks. So of parts that begin at once with two codes, one goes on.
    """
    declared = folder.load_sweep().get("code_id")
    if declared in (None, version.id) or not (name := live_part(folder, tell, declared)):
        return
    known = {one.id: (number, one) for number, one in load_versions(folder).items()}
    number, before = known.get(declared, (0, None))
    what = f": {'; '.join(change_texts(before, version)[:3])}" if before else ""
    way = way_to_same_code(before, version, number) if before else ""
    same = f", or run the code of that part: {way}" if way else ""
    part = next((str(part) for part in read_parts(folder) if part.name == name), "a part")
    raise ChangedStudyError(
        f"{part} is at work with other code{what}. Wait until it has ended{same}"
    )
