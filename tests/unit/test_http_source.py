"""What takes long is found by one at a time, and never for who asked after it was begun."""

import threading

import trio
import trio.testing

from kvtool.http.source import Shared


def test_who_asks_meanwhile_shares_the_next_answer() -> None:
    begun: list[int] = []
    release = threading.Semaphore(0)

    def find() -> int:
        begun.append(len(begun) + 1)
        release.acquire()
        return len(begun)

    async def main() -> None:
        shared = Shared(find)
        answers: list[int] = []

        async def ask() -> None:
            answers.append(await shared.now())

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
            while not begun:
                await trio.lowlevel.checkpoint()
            for _ in range(5):
                nursery.start_soon(ask)
            await trio.testing.wait_all_tasks_blocked()
            release.release()
            release.release()
        assert answers == [1, 2, 2, 2, 2, 2]
        assert begun == [1, 2]
        assert await shared.recent(60.0) == 2
        release.release()
        assert await shared.recent(0.0) == 3

    trio.run(main)


def test_a_failure_is_told_and_the_next_asks_anew() -> None:
    answers = iter([OSError("no"), 7])

    def find() -> int:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def main() -> None:
        shared = Shared(find)
        try:
            await shared.now()
        except OSError:
            assert await shared.now() == 7
        else:
            raise AssertionError("it did not fail")

    trio.run(main)
