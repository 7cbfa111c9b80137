"""The made-up snapshots and the imitation of the server's I/O are what the other tests believe they are."""

import os
from itertools import pairwise
from pathlib import Path

import pytest

from tests.llamaio import read_like_llama, save_like_proxy, stdio_writes, write_like_llama
from tests.synth import HYBRID, PLAIN, Conversation, Shape, random_bytes

SMALL = Shape(layers=2, row=256)
SMALL_HYBRID = Shape(layers=1, row=512, state=100_000)
SHAPES = [SMALL, SMALL_HYBRID, SMALL.without_flash_attention()]


@pytest.mark.parametrize("shape", SHAPES)
def test_the_same_conversation_gives_the_same_bytes(shape: Shape) -> None:
    first = Conversation(shape, seed=1).turn(50).snapshot()
    assert Conversation(shape, seed=1).turn(50).snapshot() == first
    assert Conversation(shape, seed=2).turn(50).snapshot() != first
    assert len(first.data) == first.size
    assert first.state_end == first.size - sum(len(part) for call in first.appendix for part in call)


def test_a_branch_shares_the_rows_of_its_prefix_in_every_layer() -> None:
    first = Conversation(SMALL, seed=1).turn(50)
    other = first.branch(30, seed=2).turn(20)
    blocks = [
        (a, b)
        for a, b in zip(first.snapshot().pieces, other.snapshot().pieces, strict=True)
        if len(a) == 50 * SMALL.row
    ]
    assert len(blocks) == 2 * SMALL.layers
    for ours, theirs in blocks:
        assert ours[: 30 * SMALL.row] == theirs[: 30 * SMALL.row]
        assert ours[30 * SMALL.row :] != theirs[30 * SMALL.row :]


def test_a_recurrent_state_keeps_nothing_from_turn_to_turn() -> None:
    conversation = Conversation(SMALL_HYBRID, seed=1).turn(50)
    before = conversation.snapshot()
    after = conversation.turn(10).snapshot()
    assert before.pieces[-1] != after.pieces[-1]
    assert [call[1:] for call in before.appendix[:2]] == [call[1:] for call in after.appendix[:2]]


def test_transposed_values_are_the_same_numbers() -> None:
    straight = Conversation(SMALL, seed=1).turn(50).snapshot().data
    transposed = Conversation(SMALL.without_flash_attention(), seed=1).turn(50).snapshot().data
    assert sorted(straight[-50 * SMALL.row :]) == sorted(transposed[-50 * SMALL.row :])


@pytest.mark.parametrize("buffer", [4096, 8192])
@pytest.mark.parametrize("sizes", [[12, 5, 9000, 3], [4096], [8192, 1], [4000, 96, 1], [], [0, 20000, 0]])
def test_stdio_loses_no_byte_and_writes_whole_blocks(sizes: list[int], buffer: int) -> None:
    pieces = [random_bytes(size, seed) for seed, size in enumerate(sizes)]
    calls = [bytes(call) for call in stdio_writes(pieces, buffer)]
    assert b"".join(calls) == b"".join(pieces)
    assert all(len(call) % buffer == 0 for call in calls[:-1])
    assert all(calls)


def test_the_write_pattern_is_the_servers() -> None:
    calls = [len(call) for call in stdio_writes(Conversation(PLAIN).turn(500).snapshot().pieces)]
    tensors = [call for call in calls if call > 90_000]
    assert len(tensors) == 2 * PLAIN.layers
    assert all(size == 4096 for size, following in pairwise(calls) if following in tensors)
    without = PLAIN.without_flash_attention()
    short = [len(call) for call in stdio_writes(Conversation(without).turn(4200).snapshot().pieces)]
    assert 16_000 < len(short) < 17_000
    assert sum(4096 <= size <= 12_288 for size in short) > 16_000


@pytest.mark.parametrize("shape", SHAPES)
def test_what_is_written_like_the_server_is_read_back(shape: Shape, tmp_path: Path) -> None:
    snapshot = Conversation(shape, seed=1).turn(50).snapshot()
    path = save_like_proxy(str(tmp_path), "a", snapshot)
    assert os.listdir(tmp_path) == ["a"]
    assert read_like_llama(path, snapshot.state_end) == snapshot.data
    assert write_like_llama(path, snapshot, buffer=8192, sync=True) == snapshot.size
    assert read_like_llama(path) == snapshot.data


def test_the_full_sizes_are_those_of_the_real_models() -> None:
    assert PLAIN.per_token == 32 * 1024
    assert HYBRID.per_token == 16 * 1024
