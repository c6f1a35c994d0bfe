"""`--try N`: run a few tasks in this process, where a debugger works, and estimate the whole."""

from __future__ import annotations

import time
from collections.abc import Callable

from ..base.encode_returned import EncodedResult, ReturnedEncoder
from ..base.plan import key_text
from ..base.returned import result_names
from ..base.safe_text import printable
from ..base.selection import Only
from ..base.units import count_text, duration_text
from ..errors import InterruptedRunError
from ..state.study import Declaration, user_traceback
from .choose_tasks import TaskChoice
from .interruption import DEFAULT_GRACE_S, TrialInterruption


def try_tasks(
    declaration: Declaration,
    count: int,
    workers: int,
    tell: Callable[[str], None],
    *,
    only: Only = (),
    grace_s: float = DEFAULT_GRACE_S,
) -> int:
    """Run `count` tasks spread over the sweep; write nothing. Return the exit code.

    InterruptedRunError after a signal: the first lets a task finish within the grace.
    """
    plan = declaration.plan
    chosen = TaskChoice.of(plan, only).tasks(plan)
    count = min(count, len(chosen))
    encode = ReturnedEncoder(plan.names, result_names(declaration.function))
    tasks = [chosen[place * (len(chosen) - 1) // max(count - 1, 1)] for place in range(count)]
    durations_s = []
    failed = 0
    interruption = TrialInterruption(tell, grace_s)
    for task in tasks:
        if interruption.signal is not None:
            break
        key = plan.key(task)
        name = printable(key_text(key), breaks="")
        begun = time.monotonic()
        result: EncodedResult | None = None
        try:
            with interruption.letting_finish():
                result = encode(declaration.function(**declaration.arguments(key)))
        except Exception as error:  # shown in full, which is what a trial is for
            failed += 1
            tell(f"{name}: failed\n{user_traceback(error)}")
            continue
        if result is None:
            tell(f"{name}: stopped after {duration_text(time.monotonic() - begun)}")
            break
        durations_s.append(time.monotonic() - begun)
        tell(f"{name}: ok, {durations_s[-1]:.3g} s, {count_text(len(result.data), 'byte')}")
        if result.not_stored:
            tell(f"{name}: not stored: {result.not_stored}")
    if durations_s:
        mean_s = sum(durations_s) / len(durations_s)
        whole = duration_text(mean_s * len(chosen) / workers)
        tell(
            f"{len(durations_s)} ok, {mean_s:.3g} s each; "
            f"{count_text(len(chosen), 'task')} ≈ {whole} on {count_text(workers, 'worker')}"
        )
    if interruption.signal is not None:
        raise InterruptedRunError("stopped; a trial writes nothing", interruption.signal)
    return 1 if failed else 0
