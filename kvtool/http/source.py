"""What the API knows: the store, read here, and the mount, asked on its control socket.

All of it blocks, so it runs in threads; what reads every stub is done once at a time, for all who wait.
"""

import functools
import time
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import trio

from kvtool.core.score import Score
from kvtool.store import control
from kvtool.store.kinship import Tree, prefix_tree
from kvtool.store.layout import Layout
from kvtool.store.snapshots import Overview, overview
from kvtool.store.store import Store

T = TypeVar("T")
_CHANGES = {"delete", "gc", "label"}
_READERS = 4  # requests about single snapshots that are served at once


class Source:
    """A store with its mount."""

    def __init__(self, layout: Layout, score: Score) -> None:
        self.layout = layout
        self.score = score
        self.patience = 20.0  # seconds that the mount may take for an answer
        self._reading = trio.CapacityLimiter(_READERS)
        self._token_counts: dict[bytes, int] = {}
        self.overview = Shared(self._overview)
        self.tree = Shared(self._tree)

    async def ask(self, command: str, **fields: Any) -> dict[str, Any]:
        """The mount's answer. Raises KvtoolError, OSError.

        A change takes its time; a question that is not answered would keep its thread for ever.
        """
        patience = None if command in _CHANGES else self.patience
        question = functools.partial(control.ask, self.layout, command, patience=patience, **fields)
        # Not waited for when the client is gone: the mount ends what it has begun.
        answer = await trio.to_thread.run_sync(question, abandon_on_cancel=True)
        del answer["command"]
        return answer

    async def read(self, action: Callable[[Store], T]) -> T:
        """What `action` says of the store, opened for it: a pack that is kept open frees no space."""

        def run() -> T:
            store = Store.open(self.layout, writable=False)
            try:
                return action(store)
            finally:
                store.close()

        return await trio.to_thread.run_sync(run, limiter=self._reading)

    def _overview(self) -> Overview:
        return overview(self.layout, self.score, self._token_counts)

    def _tree(self) -> Tree:
        store = Store.open(self.layout, writable=False)
        try:
            return prefix_tree(store)
        finally:
            store.close()


class Shared(Generic[T]):
    """An answer that takes long: found by one at a time, and for all who asked before it was begun."""

    def __init__(self, find: Callable[[], T]) -> None:
        self._find = find
        self._turn = trio.Lock()
        self._begun = 0
        self._number = 0  # of the answer at hand, counted as they were begun
        self._found_at = float("-inf")
        self._answer: T

    async def now(self) -> T:
        """The answer as of now or later."""
        wanted = self._begun + 1
        async with self._turn:
            if self._number < wanted:
                number = self._begun = self._begun + 1
                began = time.monotonic()
                self._answer = await trio.to_thread.run_sync(self._find)
                self._number, self._found_at = number, began
            return self._answer

    async def recent(self, age: float) -> T:
        """The answer as of no more than `age` seconds ago."""
        if time.monotonic() - self._found_at <= age:
            return self._answer
        return await self.now()
