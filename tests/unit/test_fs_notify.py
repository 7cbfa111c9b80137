"""What a service manager is told: when, in which words, and that a mount never suffers from it."""

from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from kvtool.errors import KvtoolError
from kvtool.fs.notify import Notifier, summary
from tests.manager import Manager


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[Manager]:
    with Manager(tmp_path) as listening:
        yield listening


async def yes() -> bool:
    return True


async def fine() -> str:
    return "fine"


def run(
    notifier: Notifier,
    seconds: float,
    answers: Callable[[], Awaitable[bool]] = yes,
    status: Callable[[], Awaitable[str]] = fine,
) -> None:
    """Lets it run for that long, by a clock that jumps."""

    async def main() -> None:
        with trio.move_on_after(seconds):
            await notifier.run(answers, status)

    trio.run(main, clock=MockClock(autojump_threshold=0))


def test_the_environment_says_where_and_how_often() -> None:
    assert Notifier.of({}, 7) == Notifier("", 0)
    assert Notifier.of({"NOTIFY_SOCKET": "/run/x", "WATCHDOG_USEC": "200000"}, 7) == Notifier("/run/x", 0.2)
    both = {"NOTIFY_SOCKET": "@x", "WATCHDOG_USEC": "3000000"}
    assert Notifier.of(both | {"WATCHDOG_PID": "7"}, 7) == Notifier("@x", 3)
    assert Notifier.of(both | {"WATCHDOG_PID": "8"}, 7) == Notifier("@x", 0)
    assert Notifier.of(both | {"WATCHDOG_USEC": "soon"}, 7) == Notifier("@x", 0)


@pytest.mark.parametrize("abstract", [False, True])
def test_a_message_is_one_datagram_of_lines(tmp_path: Path, abstract: bool) -> None:
    with Manager(tmp_path, abstract=abstract) as manager:

        async def main() -> None:
            await Notifier(manager.address).say(READY="1", STATUS="a=b")

        trio.run(main)
        assert manager.waiting() == [{"READY": "1", "STATUS": "a=b"}]


def test_without_a_watchdog_there_is_a_text_a_minute_and_nobody_is_asked(manager: Manager) -> None:
    async def never() -> bool:
        raise AssertionError

    run(Notifier(manager.address), 150, never)
    assert manager.waiting() == [{"STATUS": "fine"}] * 3


def test_a_watchdog_is_pinged_twice_in_its_time(manager: Manager) -> None:
    run(Notifier(manager.address, 10), 21)
    assert manager.waiting() == [{"WATCHDOG": "1", "STATUS": "fine"}] * 5


def test_there_is_no_ping_while_the_mount_does_not_answer(manager: Manager) -> None:
    async def hangs() -> bool:
        await trio.sleep(300)
        return True

    run(Notifier(manager.address, 10), 299, hangs)
    assert manager.waiting() == []


def test_there_is_no_ping_when_the_mount_answers_wrongly(manager: Manager) -> None:
    async def no() -> bool:
        return False

    run(Notifier(manager.address, 10), 9, no)
    assert manager.waiting() == [{"STATUS": "fine"}] * 2


def test_a_text_that_cannot_be_made_stops_no_ping(
    manager: Manager, expect_log: Callable[[str], None]
) -> None:
    async def damaged() -> str:
        raise KvtoolError("the catalog is damaged")

    expect_log("told less than it should be: the catalog is damaged")
    run(Notifier(manager.address, 10), 9, status=damaged)
    assert manager.waiting() == [{"WATCHDOG": "1"}] * 2


@pytest.mark.parametrize("name", ["nobody", "x" * 200, "folder"])
def test_a_socket_that_cannot_be_used_is_one_warning(
    tmp_path: Path, name: str, expect_log: Callable[[str], None], caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "folder").mkdir()
    expect_log("service manager cannot be told: NOTIFY_SOCKET=/")
    run(Notifier(str(tmp_path / name), 10), 30)
    assert len(caplog.records) == 1


def test_who_does_not_listen_holds_nothing_up(manager: Manager) -> None:
    async def main() -> None:
        with trio.fail_after(3600):
            for number in range(1000):
                await Notifier(manager.address).say(STATUS=str(number))

    trio.run(main, clock=MockClock(autojump_threshold=0))
    assert len(manager.waiting()) < 1000


def test_nothing_is_said_where_nobody_asks() -> None:
    async def never() -> bool:
        raise AssertionError

    run(Notifier("", 10), 30, never)


def test_the_text_has_the_figures() -> None:
    text = summary(stored=3 << 30, commits=1, saved=9 << 30, new=1 << 20, unfinished=2, open_files=1)
    assert text == (
        "3 GiB stored; 1 save of 9 GiB since the start, 1 MiB of it new; 2 saves under way, 1 file open"
    )
