"""A store worth looking at: turns and branches of conversations, other files, names that play tricks."""

import os
import random

from tests.api import Api, save
from tests.synth import Conversation, Shape

SHAPE = Shape(layers=4, row=256)
TRICKS = (b"odd/<script>alert(1)</script>", b"odd/quo\"te' & co", b"odd/line\nbreak", b"odd/\xff\xfe")


def fill(api: Api, conversations: int = 3, *, tricks: bool = True) -> None:
    """Saves all of it, labels some, and restores some."""
    for number in range(conversations):
        one = Conversation(SHAPE, seed=number).turn(800)
        for turn in range(3):
            save(api, f"chat/talk-{number}-turn-{turn}.bin", one.turn(300).snapshot().data)
        other = one.branch(1000 + 100 * number, seed=90 + number)
        save(api, f"chat/talk-{number}-another-answer.bin", other.turn(400).snapshot().data)
    save(api, "notes.txt", random.Random(1).randbytes(700_000))
    for name in TRICKS if tricks else ():
        save(api, name, b"<b>" + name)
    for name in ("chat/talk-0-turn-2.bin", "notes.txt"):
        with open(os.path.join(api.mount.dir, name), "rb") as file:
            while file.read(1 << 20):
                pass
    api("/v1/snapshots/chat/talk-0-turn-2.bin", "PATCH", {"labels": {"keep": "yes", "project": "demo"}})
