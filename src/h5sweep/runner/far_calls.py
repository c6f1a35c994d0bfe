"""The calls of a run that an engine has: sent, sent again if they are lost, asked to end."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import CancelledError, Future, wait
from contextlib import suppress
from dataclasses import dataclass
from pickle import PickleBuffer

from .. import __version__
from ..errors import EngineError
from ..runfolder.layout import RunFolder
from ..runfolder.orders import Order
from .engine import Engine, first_line
from .far_part import STOPPED, FarOrder, FarOutcome, run_far_part

TICK_S = 0.1
MOST_LOST = 3  # times as many calls as there are parts, without a new result


class FarCalls:
    """One call for each part. `run` yields how each ended, and None meanwhile.

    Some engines call again what they have lost, some say that they have lost it: that is sent
    again, as long as there are new results.
    """

    unit, at_once = "part", "leave now: what runs elsewhere ends by itself"

    def __init__(
        self,
        engine: Engine,
        function: bytes,
        far: FarOrder,
        folder: RunFolder,
        results: Callable[[], int],
    ) -> None:
        """`function` is what `hand_over` has packed; `results` counts those in the folder now."""
        self._engine = engine
        self._function = function
        self._far = far
        self._folder = folder
        self._results = results
        self._calls: dict[Future[FarOutcome], int] = {}
        self._attempts = self._lost = self._results_before = 0
        self._is_draining = self._is_stopped = False

    @property
    def order(self) -> Order:
        return self._far.order

    def drain(self) -> None:
        self._is_draining = True

    def stop(self) -> None:
        self._is_stopped = True

    def is_busy(self) -> bool:
        return bool(self._calls)

    def current(self) -> Collection[object]:
        return self._calls

    def run(self) -> Iterator[FarOutcome | None]:
        """Send all calls and wait for their ends; EngineError if the engine is gone.

        Those that it still has then end by themselves, because the order is withdrawn.
        """
        for number in range(self._engine.parts):
            self._send(number + 1)
        while self._calls and not self._is_stopped:
            if self._is_draining:
                self.order.withdraw(self._folder)
                self._cancel_queued()
            wait(self._calls, timeout=TICK_S, return_when="FIRST_COMPLETED")
            for call in [call for call in self._calls if call.done()]:
                yield from self._take(call)
            yield None
        self._cancel(self._calls)  # not of an engine that is gone: to ask it may take long

    def _cancel_queued(self) -> None:
        """Have no other call begin, where an engine says which of them run; Dask does not."""
        if any(call.running() for call in self._calls):
            self._cancel([call for call in self._calls if not call.running()])

    def _cancel(self, calls: Iterable[Future[FarOutcome]]) -> None:
        for call in calls:
            with suppress(Exception):  # whatever an engine may raise: Parsl cannot
                call.cancel()

    def _send(self, number: int) -> None:
        self._attempts += 1
        try:
            arguments = (self._far, number, self._engine.parts, self._attempts)
            call = self._engine.executor.submit(
                pickle.loads, _packed_call(self._function, arguments), buffers=[self._function]
            )
        except Exception as error:  # whatever an engine may raise
            raise EngineError(f"the engine takes no more calls: {_error_text(error)}") from error
        self._calls[call] = number

    def _take(self, call: Future[FarOutcome]) -> Iterator[FarOutcome]:
        number = self._calls.pop(call)
        try:
            outcome = call.result(timeout=0)
        except CancelledError as error:
            if not self._is_draining:
                raise EngineError(
                    "the engine has dropped what it was sent: it has ended"
                ) from error
        except Exception as error:  # whatever an engine may raise
            self._send_again(number, _error_text(error))
        else:
            yield outcome
            if outcome.trouble == STOPPED:
                self._send_again(number, f"{outcome.host}: {outcome.text}")

    def _send_again(self, number: int, why: str) -> None:
        """Send a part again that was lost; EngineError if nothing but that happens."""
        if self._is_draining:
            return
        results = self._results()
        self._lost = 1 if results > self._results_before else self._lost + 1
        self._results_before = results
        if self._lost > MOST_LOST * self._engine.parts:
            raise EngineError(f"the engine has lost {self._lost:,} calls in a row; the last: {why}")
        self._send(number)


def _packed_call(function: bytes, arguments: tuple[FarOrder, int, int, int]) -> bytes:
    """Bytes that make the call of `run_far_part` when they are unpickled, beside the function.

    Every worker can take them in. What fails there without our package, or with an old one, is then
    the call, and not the worker as it receives a message: Dask would wait for ever.
    """
    call = _Call((PickleBuffer(function), *arguments))
    return pickle.dumps(call, protocol=5, buffer_callback=lambda _: None)


@dataclass(frozen=True)
class _Call:
    arguments: tuple[object, ...]

    def __reduce__(self) -> tuple[Callable[..., FarOutcome], tuple[object, ...]]:
        return run_far_part, self.arguments


def _error_text(error: Exception) -> str:
    if isinstance(error, ModuleNotFoundError) and error.name == "h5sweep":
        return "its workers have no h5sweep; install it where they run"
    if isinstance(error, ModuleNotFoundError) and str(error.name).startswith("h5sweep."):
        return f"its workers have no h5sweep {__version__}; install it where they run"
    return f"{type(error).__name__}: {first_line(error)}" if str(error) else type(error).__name__
