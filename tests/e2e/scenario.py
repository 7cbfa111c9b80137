"""The life of a slot: a prompt, its next turn, another conversation with the same prefix; then all of them
back.

Run once on a plain folder and once on a mount; what comes out must be the same.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tests.e2e.client import LIMIT, Server
from tests.e2e.models import PRINTABLE

NAMES = ("first.bin", "next-turn.bin", "other.bin")


@dataclass
class Outcome:
    """What a run leaves: the same on every kind of folder. `new` is what `measure` gave after each save."""

    written: dict[str, int] = field(default_factory=dict)
    tokens: dict[str, int] = field(default_factory=dict)
    read: dict[str, int] = field(default_factory=dict)
    reused: dict[str, int] = field(default_factory=dict)
    answers: dict[str, list[int]] = field(default_factory=dict)
    stored: list[int] = field(default_factory=list, compare=False)


def run(
    model: str,
    folder: Path,
    tokens: int,
    *,
    flash_attention: str = "auto",
    limit: float = LIMIT,
    stored: Callable[[], int] = lambda: 0,
    between: Callable[[], None] = lambda: None,
) -> Outcome:
    """Three saves, the server stopped, `between`, the server started, three restores.

    `stored` says how many bytes the folder's storage holds; it is asked before and after each save.
    """
    outcome = Outcome(stored=[stored()])
    prompts: dict[str, list[int]] = {}
    with Server(model, folder, flash_attention, limit) as server:

        def turn(name: str, prompt: list[int]) -> list[int]:
            answer = server.complete(prompt)
            outcome.written[name], outcome.tokens[name] = server.save(name)
            outcome.stored.append(stored())
            prompts[name] = prompt + answer.tokens
            return prompts[name]

        opening = text(1, tokens)
        so_far = turn("first.bin", opening)
        turn("next-turn.bin", so_far + text(2, tokens // 7))
        turn("other.bin", opening[: tokens * 6 // 10] + text(3, tokens * 4 // 10))
        server.save("again.bin")
        outcome.stored.append(stored())
    between()
    with Server(model, folder, flash_attention, limit) as server:
        for name in NAMES:
            outcome.read[name] = server.restore(name)
            answer = server.complete(prompts[name] + text(4, 3))
            outcome.reused[name], outcome.answers[name] = answer.reused, answer.tokens
    return outcome


def text(seed: int, tokens: int) -> list[int]:
    """Printable nonsense, the same for the same seed."""
    return random.Random(seed).choices(PRINTABLE, k=tokens)
