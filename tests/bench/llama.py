"""The real server with full-size models: what its saves store, and how long its saves and restores take."""

import importlib.util
import os
import shutil
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from tests.bench.results import Plan, Results
from tests.bench.steps import KVTOOL, PLAIN_FILE, POWER, SYNCED, Steps, make_forgetful, measure, measure_warm
from tests.mounts import MountedStore

if TYPE_CHECKING:
    from tests.e2e.client import Server

SHARE = "New bytes, real llama.cpp server"
TURNS = 3
_TOKENS, _MORE = 4200, 600  # of the first turn, and of each that follows
_LIMIT = 1800.0


def llama(results: Results, folder: Path, plan: Plan) -> None:
    """A plain and a hybrid model; takes minutes."""
    if importlib.util.find_spec("xllamacpp") is None:
        results.note("xllamacpp is not installed: the real server was left out.")
        return
    from tests.e2e import models, scenario

    for name, model in (("plain", models.PLAIN), ("hybrid", models.HYBRID)):
        path = models.write_model(str(folder / f"{name}.gguf"), model)
        with MountedStore(folder / name, limit=_LIMIT) as mount:
            outcome = scenario.run(path, mount.dir, _TOKENS, stored=lambda: mount.pack_bytes, limit=900)
        sizes = [*outcome.written.values(), outcome.written[scenario.NAMES[-1]]]
        for at, what in enumerate(("first", "next turn", "other conversation", "the same again")):
            share = (outcome.stored[at + 1] - outcome.stored[at]) / sizes[at] * 100
            results.add(SHARE, f"{name}, {what}", share, "%")
        shutil.rmtree(folder / name)
        _in_turns(results, folder, plan, name, path)
    case = f"Real server, hybrid model, turn {TURNS}, saved"
    what = 'real server, hybrid, next turn, "power", beside plain and fsync'
    results.ratio(what, (case, POWER), (case, SYNCED), 1, at_least=False)
    results.hold("hybrid, next turn, new bytes", results.median(SHARE, "hybrid, next turn"), 40, "%")
    results.hold("hybrid, the same again, new bytes", results.median(SHARE, "hybrid, the same again"), 0, "%")


def _in_turns(results: Results, folder: Path, plan: Plan, name: str, model: str) -> None:
    """Three turns, each saved by the same server into all places, whose names are links in its folder."""
    from tests.e2e.client import Server
    from tests.e2e.scenario import text

    slots, plain = folder / "slots", folder / "plain"
    for place in (slots, plain):
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
    with Server(model, slots, limit=_LIMIT) as server:
        prompt: list[int] = []
        for turn in range(TURNS):
            prompt = prompt + text(turn, _MORE if turn else _TOKENS)
            prompt = prompt + server.complete(prompt).tokens
            server.save(f"turn-{turn}")
        for run in range(plan.runs):
            power = MountedStore(folder / "power", "--store.durability", "power", limit=_LIMIT)
            with MountedStore(folder / "kvtool", limit=_LIMIT) as mount, power:
                places = {KVTOOL: mount.dir, POWER: power.dir, PLAIN_FILE: plain, SYNCED: plain}
                for turn in range(TURNS):
                    server.restore(f"turn-{turn}")
                    groups = _saves(server, slots, places)
                    measure(results, f"Real server, {name} model, turn {turn + 1}, saved", groups, run)
                restores = [
                    (who, partial(server.restore, _linked(slots, who))) for who in (KVTOOL, PLAIN_FILE)
                ]
                case = f"Real server, {name} model, restored"
                measure(results, f"{case}, cold", [restores], run, make_forgetful(mount))
                measure_warm(results, f"{case}, warm", restores, run)
            for store in ("kvtool", "power"):
                shutil.rmtree(folder / store)


def _saves(server: "Server", slots: Path, places: Mapping[str, Path]) -> list[Steps]:
    """For each place a save of the slot as it is; of the pairs, one with and one without an fsync."""

    def save(who: str) -> Callable[[], object]:
        target = places[who] / _linked(slots, who)
        temporary = slots / f"{target.name}.tmp"
        temporary.unlink(missing_ok=True)
        temporary.symlink_to(target)

        def act() -> None:
            server.save(target.name)
            if who == SYNCED:
                with target.open("rb") as file:
                    os.fsync(file.fileno())

        return act

    return [[(who, save(who)) for who in pair] for pair in ((KVTOOL, PLAIN_FILE), (POWER, SYNCED))]


def _linked(slots: Path, who: str) -> str:
    """The name of the one snapshot in a place: one a place, as each turn replaces the last."""
    return {KVTOOL: "kvtool", POWER: "power", PLAIN_FILE: "plain", SYNCED: "synced"}[who] + ".bin"
