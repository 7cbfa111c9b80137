"""One writer a store: who holds the lock is named, and what a crash leaves is seen by the next."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kvtool.errors import StoreLocked
from kvtool.store import lock
from kvtool.store.layout import Layout


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return Layout(tmp_path, tmp_path / "stubs")


def test_the_holder_is_named(layout: Layout) -> None:
    held = lock.acquire(layout)
    with pytest.raises(StoreLocked, match=f"in use by process {os.getpid()}") as caught:
        lock.acquire(layout)
    assert caught.value.exit_code == 11
    held.release()
    lock.acquire(layout).release()


def test_a_lock_without_a_name_in_it_still_holds(layout: Layout) -> None:
    held = lock.acquire(layout)
    layout.lock.write_text("")
    with pytest.raises(StoreLocked, match="process unknown"):
        lock.acquire(layout)
    held.release()


def test_a_clean_stop_and_a_new_lock_are_clean(layout: Layout) -> None:
    for _ in range(2):
        held = lock.acquire(layout)
        assert (held.unclean, held.rebooted) == (False, False)
        held.release()


def test_who_stops_without_release_was_unclean(layout: Layout) -> None:
    lock.acquire(layout).abandon()
    held = lock.acquire(layout)
    assert (held.unclean, held.rebooted) == (True, False)
    held.release()
    assert not lock.acquire(layout).unclean


def test_who_ran_in_another_boot_left_a_store_to_be_checked(layout: Layout) -> None:
    layout.lock.write_text("123 00000000-0000-0000-0000-000000000000\n")
    held = lock.acquire(layout)
    assert (held.unclean, held.rebooted) == (True, True)
    held.abandon()


def test_a_clean_stop_in_another_boot_is_looked_at_too(layout: Layout) -> None:
    lock.acquire(layout).release()
    layout.lock.write_text("- 00000000-0000-0000-0000-000000000000\n")
    held = lock.acquire(layout)
    assert (held.unclean, held.rebooted) == (True, True)
    held.mended()
    held.release()
    held = lock.acquire(layout)
    assert (held.unclean, held.rebooted) == (False, False)
    held.release()


def test_another_boots_stop_stays_noted_until_the_store_is_mended(layout: Layout) -> None:
    layout.lock.write_text("123 00000000-0000-0000-0000-000000000000\n")
    lock.acquire(layout).abandon()  # killed while it checks the packs
    held = lock.acquire(layout)
    assert held.rebooted
    held.mended()
    held.abandon()
    held = lock.acquire(layout)
    assert (held.unclean, held.rebooted) == (True, False)
    held.release()


@pytest.mark.parametrize("text", [b"\xff\xfe\xfd", b"12", b" ", b"x" * 5000])
def test_any_text_in_the_lock_is_survived(layout: Layout, text: bytes) -> None:
    layout.lock.write_bytes(text)
    held = lock.acquire(layout)
    assert (held.unclean, held.rebooted) == (True, True)  # it may be what a power cut left
    with pytest.raises(StoreLocked, match=f"process {os.getpid()}"):
        lock.acquire(layout)
    held.release()


def test_an_inherited_descriptor_keeps_the_lock(layout: Layout) -> None:
    held = lock.acquire(layout)
    child = subprocess.Popen(
        [sys.executable, "-c", "input()"],
        pass_fds=[held.fd],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
    )
    try:
        held.release()
        assert lock.is_held(layout)
        with pytest.raises(StoreLocked):
            lock.acquire(layout)
    finally:
        child.communicate(b"\n", timeout=30)
    assert not lock.is_held(layout)
    lock.acquire(layout).release()


def test_asking_whether_it_is_held_makes_no_file_and_takes_no_lock(layout: Layout) -> None:
    assert not lock.is_held(layout)
    assert not layout.lock.exists()
    held = lock.acquire(layout)
    assert lock.is_held(layout)
    held.release()
    assert not lock.is_held(layout)
    assert not lock.acquire(layout).unclean


def test_a_lock_file_that_was_deleted_lets_no_second_writer_in(layout: Layout) -> None:
    held = lock.acquire(layout)
    layout.lock.unlink()
    with pytest.raises(StoreLocked, match="has been deleted") as caught:
        lock.acquire(layout)
    assert caught.value.exit_code == 11
    held.abandon()
    lock.acquire(layout).release()
