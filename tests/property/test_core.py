"""The pure core: the chunker cuts the same however bytes arrive; formats decode to what was encoded or
refuse.
"""

import hashlib
import random
import struct
from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvtool.core import index as chunk_index
from kvtool.core import pack, tokens
from kvtool.core.chunker import ChunkSizes, cut
from kvtool.core.index import Index
from kvtool.core.pack import HEADER_SIZE, TRAILER_SIZE, Entry
from kvtool.core.tokens import NoTokens, TokenList
from kvtool.errors import IndexDamaged, PackDamaged

SMALL = ChunkSizes(1 << 10, 4 << 10, 16 << 10)
_contents = st.one_of(
    st.builds(lambda seed, n: random.Random(seed).randbytes(n), st.integers(0, 9), st.integers(0, 200_000)),
    st.builds(lambda byte, n: bytes([byte]) * n, st.integers(0, 255), st.integers(0, 200_000)),
    st.binary(max_size=3000),
)


def stream_cuts(data: bytes, pieces: list[int], sizes: ChunkSizes) -> list[int]:
    """The cuts of `data` when it arrives in pieces of those sizes, over and over."""
    lengths, carry, position, turn = [], b"", 0, 0
    while position < len(data):
        piece = data[position : position + pieces[turn % len(pieces)]]
        position, turn = position + len(piece), turn + 1
        carry += piece
        found = cut(carry, sizes, final=False)
        lengths += found
        carry = carry[sum(found) :]
        assert len(carry) < sizes.max_size
    return lengths + cut(carry, sizes, final=True)


@given(_contents, st.lists(st.integers(1, 40_000), min_size=1, max_size=8))
def test_streaming_in_any_split_cuts_as_one_pass(data: bytes, pieces: list[int]) -> None:
    pieces = [max(piece, len(data) // 200) for piece in pieces]
    assert stream_cuts(data, pieces, SMALL) == cut(data, SMALL, final=True)


@given(_contents)
def test_cuts_cover_the_data_within_the_bounds(data: bytes) -> None:
    lengths = cut(data, SMALL, final=True)
    assert sum(lengths) == len(data)
    assert all(length <= SMALL.max_size for length in lengths)
    assert all(length >= SMALL.min_size for length in lengths[:-1])
    assert all(lengths)


@given(_contents, st.integers(0, 200_000))
def test_an_append_that_cuts_the_last_chunk_again_gives_one_pass(data: bytes, at: int) -> None:
    before = cut(data[:at], SMALL, final=True)
    kept = before[:-1]
    assert kept + cut(data[sum(kept) :], SMALL, final=True) == cut(data, SMALL, final=True)


def test_equal_data_meets_again_behind_an_insertion() -> None:
    data = random.Random(1).randbytes(1 << 20)

    def ids(content: bytes) -> set[bytes]:
        found, start = set(), 0
        for length in cut(content, SMALL, final=True):
            found.add(hashlib.sha256(content[start : start + length]).digest())
            start += length
        return found

    assert len(ids(data) - ids(b"x" * 777 + data)) <= 3


GOLDEN = {
    SMALL: (
        513,
        [13511, 5096, 3236, 5659],
        "6139c338ddd0d33cd818a26f9be8de2cc8c3beb04d9b3fed711d3bb226d0050e",
    ),
    ChunkSizes(): (
        31,
        [57382, 54731, 46247, 82949],
        "83176e5119f96826e080a8b6b378cac4ade4687e5cfc57f630c53bde73c3aede",
    ),
}


@pytest.mark.parametrize("sizes", [SMALL, ChunkSizes()], ids=["small", "default"])
def test_golden_cut_points(sizes: ChunkSizes) -> None:
    """Another chunker would find none of the chunks stored so far: every store would double."""
    data = b"".join(hashlib.sha256(b"%d" % i).digest() for i in range(65536))
    lengths = cut(data, sizes, final=True)
    digest = hashlib.sha256(",".join(map(str, lengths)).encode()).hexdigest()
    assert (len(lengths), lengths[:4], digest) == GOLDEN[sizes]


# The chunk index


@st.composite
def indexes(draw: st.DrawFn) -> Index:
    lengths = draw(st.lists(st.integers(1, SMALL.max_size), max_size=30))
    ids = draw(st.binary(min_size=32 * len(lengths), max_size=32 * len(lengths)))
    return Index(SMALL).extended(array("Q", lengths), ids)


def decoded_or_refused(data: bytes) -> Index | None:
    """Any other exception than the one error fails the test."""
    try:
        return chunk_index.decode(data)
    except IndexDamaged:
        return None


@given(indexes())
def test_index_decodes_to_what_was_encoded(index: Index) -> None:
    data = chunk_index.encode(index)
    assert chunk_index.decode(data) == index
    assert len(data) == chunk_index.file_size(len(index)) == 104 + 40 * len(index)


@given(st.binary(max_size=400) | st.integers(0, 9).map(lambda n: bytes(104 + 40 * n)))
def test_any_bytes_are_an_index_or_refused(data: bytes) -> None:
    assert decoded_or_refused(data) is None


@given(indexes(), st.data())
def test_a_damaged_index_is_refused_or_still_one(index: Index, data: st.DataObject) -> None:
    encoded = bytearray(chunk_index.encode(index))
    for _ in range(data.draw(st.integers(1, 3))):
        encoded[data.draw(st.integers(0, len(encoded) - 1))] ^= data.draw(st.integers(1, 255))
    found = decoded_or_refused(bytes(encoded))
    # A flipped bit inside an id or an end offset may give another index, which then says what it holds.
    assert found is None or chunk_index.encode(found) == encoded


@given(indexes(), st.integers(1, 200), st.booleans())
def test_an_index_cut_short_or_with_a_tail_is_refused(index: Index, count: int, longer: bool) -> None:
    encoded = chunk_index.encode(index)
    wrong = encoded + bytes(count) if longer else encoded[:-count]
    assert decoded_or_refused(wrong) is None


# The pack

PACK_ID = bytes(range(16))


@st.composite
def packs(draw: st.DrawFn) -> tuple[list[Entry], bytes]:
    """A pack's chunks and its whole content."""
    chunks = draw(st.lists(st.binary(min_size=1, max_size=200), max_size=12))
    entries, offset = [], HEADER_SIZE
    for chunk in chunks:
        entries.append(Entry(hashlib.sha256(chunk).digest(), offset, len(chunk), pack.checksum(chunk)))
        offset += len(chunk)
    return entries, pack.header(PACK_ID) + b"".join(chunks) + pack.footer(entries, offset)


def read_pack(content: bytes) -> list[Entry]:
    """As `store.packs.read_entries` does."""
    assert pack.decode_header(content[:HEADER_SIZE]) == PACK_ID
    trailer = pack.decode_trailer(content[-TRAILER_SIZE:], len(content))
    table = content[trailer.footer_offset : trailer.footer_offset + trailer.footer_size]
    return pack.decode_footer(table, trailer)


@given(places=st.lists(st.tuples(st.binary(min_size=32, max_size=32), *[st.integers(0, (1 << 63) - 1)] * 2)))
def test_a_table_of_columns_is_that_of_rows(places: list[tuple[bytes, int, int]]) -> None:
    ids = b"".join(place[0] for place in places)
    offsets, lengths = (array("q", [place[i] for place in places]) for i in (1, 2))
    rows = pack.encode_entries((*place, 0) for place in places)
    assert pack.encode_places(ids, offsets, lengths) == rows
    assert pack.entries_in(rows) == [(*place, 0) for place in places]


@given(packs())
def test_pack_footer_decodes_to_what_was_sealed(sealed: tuple[list[Entry], bytes]) -> None:
    entries, content = sealed
    assert read_pack(content) == entries


@given(packs(), st.data())
def test_a_damaged_footer_or_trailer_is_refused(
    sealed: tuple[list[Entry], bytes], data: st.DataObject
) -> None:
    entries, content = sealed
    damaged = bytearray(content)
    start = len(content) - TRAILER_SIZE - 56 * len(entries)
    damaged[data.draw(st.integers(start, len(content) - 1))] ^= data.draw(st.integers(1, 255))
    with pytest.raises(PackDamaged):
        read_pack(bytes(damaged))


@given(packs(), st.integers(1, 5000))
def test_a_pack_cut_short_is_refused(sealed: tuple[list[Entry], bytes], count: int) -> None:
    _, content = sealed
    with pytest.raises(PackDamaged):
        read_pack(content[: max(0, len(content) - count)])


@given(st.binary(max_size=200), st.integers(0, 1 << 70))
def test_any_bytes_are_a_trailer_or_refused(data: bytes, size: int) -> None:
    with pytest.raises(PackDamaged):
        pack.decode_trailer(data, size)


@given(st.binary(max_size=60) | st.binary(min_size=HEADER_SIZE, max_size=HEADER_SIZE + 10))
def test_any_bytes_are_a_pack_header_or_refused(data: bytes) -> None:
    with pytest.raises(PackDamaged):
        pack.decode_header(data)


@given(st.binary(max_size=200), st.integers(0, 5), st.integers(0, (1 << 64) - 1))
def test_any_bytes_are_a_footer_or_refused(table: bytes, count: int, footer_offset: int) -> None:
    """A footer with the right checksum may still place chunks where there is no data."""
    trailer = pack.Trailer(footer_offset, count, pack.checksum(table))
    try:
        entries = pack.decode_footer(table, trailer)
    except PackDamaged:
        return
    assert len(entries) == count
    assert all(e.offset >= HEADER_SIZE and e.offset + e.length <= footer_offset for e in entries)


_words = st.lists(st.integers(-(1 << 31), (1 << 31) - 1), max_size=40).map(lambda values: array("i", values))
_token_lists = st.one_of(
    st.builds(TokenList, st.integers(4, 9), _words, _words),
    # A plain list that begins with -1 is read as the other form: no llama.cpp has such a token.
    st.builds(
        TokenList,
        st.integers(0, 9),
        _words.filter(lambda words: not words or words[0] != -1),
        structured=st.just(False),
        session=st.booleans(),
    ),
)


@given(_token_lists, st.binary(max_size=20))
def test_a_token_list_decodes_to_what_was_encoded(head: TokenList, rest: bytes) -> None:
    encoded = tokens.encode(head)
    assert tokens.header_size(encoded[: tokens.PREFIX_SIZE]) == len(encoded)
    assert tokens.decode(encoded + rest) == head


def test_the_layout_of_a_slot_file_is_stable() -> None:
    words = struct.pack("<IIIiIIiiI", 0x67677371, 4, 6, -1, 1, 2, 77, 78, 0)
    assert tokens.decode(words) == TokenList(4, array("i", [77, 78]), array("i", [0]))
    words = struct.pack("<IIIii", 0x67677371, 3, 2, -1, 78)  # before version 4 there is one form only
    assert tokens.decode(words) == TokenList(3, array("i", [-1, 78]), structured=False)


@given(_token_lists, st.data())
def test_any_damage_to_a_token_list_is_decoded_or_refused(head: TokenList, data: st.DataObject) -> None:
    encoded = bytearray(tokens.encode(head))
    at = data.draw(st.integers(0, len(encoded) - 1))
    encoded[at : at + data.draw(st.integers(0, 8))] = data.draw(st.binary(max_size=8))
    _decoded_or_refused(bytes(encoded))


@given(
    st.binary(max_size=100)
    | st.binary(max_size=60).map(lambda rest: struct.pack("<II", 0x67677371, 4) + rest)
)
def test_any_bytes_are_a_token_list_or_refused(data: bytes) -> None:
    _decoded_or_refused(data)


def _decoded_or_refused(data: bytes) -> None:
    try:
        head = tokens.decode(data)
    except NoTokens:
        return
    assert tokens.encode(head) == data[: tokens.header_size(data)]
