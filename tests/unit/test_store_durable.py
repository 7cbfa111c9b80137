"""The mark that says what is on the disk; what it is good for is in test_store_recover."""

import os

import pytest

from kvtool.store import durable
from kvtool.store.layout import Layout


def test_a_mark_of_garbage_is_none_and_is_replaced(layout: Layout) -> None:
    layout.synced.write_bytes(b"\xff\x00")
    assert durable.synced_up_to(layout) == 0
    durable.sync_all(layout, 3)
    assert durable.synced_up_to(layout) == 3


def test_a_pipe_in_place_of_the_sync_mark_is_not_waited_for(layout: Layout) -> None:
    os.mkfifo(layout.synced)
    with pytest.raises(OSError, match="not a regular file"):
        durable.sync_all(layout, 3)
    assert durable.synced_up_to(layout) == 0
