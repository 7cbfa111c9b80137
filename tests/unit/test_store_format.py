"""store.toml: what is written is read back, and any other text is refused with one error."""

from pathlib import Path

import pytest
import tomli_w
from hypothesis import given, settings
from hypothesis import strategies as st

from kvtool.errors import NoStore, StoreFormatError
from kvtool.store.format import StoreFormat, dump, lines, parse, read

few = settings(derandomize=True, max_examples=50, deadline=None)

FORMAT = StoreFormat(store_id="0123456789abcdef" * 2, min_size=16384, avg_size=65536, max_size=262144)

formats = st.builds(
    lambda store_id, sizes: StoreFormat(
        store_id=store_id, **dict(zip(("min_size", "avg_size", "max_size"), sorted(sizes), strict=True))
    ),
    st.text("0123456789abcdef", min_size=32, max_size=32),
    st.tuples(*[st.integers(1, 2**30)] * 3),
)
toml_values = st.recursive(
    st.none() | st.integers(-(2**65), 2**65) | st.text() | st.booleans() | st.floats(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
).filter(lambda value: value is not None)


@few
@given(formats)
def test_what_is_written_is_read_back(fmt: StoreFormat) -> None:
    assert parse(dump(fmt), "store.toml") == fmt


def test_the_layout_is_stable() -> None:
    assert dump(FORMAT) == (
        "# Written by kvtool when it made this store. Changing it makes the store unreadable.\n"
        "version = 1\n"
        'store_id = "0123456789abcdef0123456789abcdef"\n'
        "\n"
        "[chunk]\n"
        'chunker = "fastcdc"\n'
        "min_size = 16384\n"
        "avg_size = 65536\n"
        "max_size = 262144\n"
        'hash = "sha256"\n'
    )
    assert lines(dump(FORMAT)) == {"chunk.min_size": 7, "chunk.avg_size": 8, "chunk.max_size": 9}


def parsed_or_refused(text: str) -> None:
    try:
        fmt = parse(text, "here/store.toml")
    except StoreFormatError as error:
        assert error.message.startswith("here/store.toml:")  # noqa: PT017  (either outcome is right)
        assert error.hint  # noqa: PT017
    else:
        assert parse(dump(fmt), "") == fmt
        assert set(lines(text)) == {"chunk.min_size", "chunk.avg_size", "chunk.max_size"}


@few
@given(st.text())
def test_any_text_is_parsed_or_refused(text: str) -> None:
    parsed_or_refused(text)


@few
@given(st.data(), st.integers(0, 300), st.integers(0, 5), st.text(max_size=5))
def test_any_damage_is_parsed_or_refused(data: st.DataObject, at: int, length: int, put: str) -> None:
    text = dump(FORMAT)
    parsed_or_refused(text[:at] + put + text[at + length :])


@few
@given(
    st.sampled_from(["version", "store_id", "chunk", "min_size", "max_size", "chunker", "hash", "x"]),
    toml_values,
)
def test_any_value_of_a_key_is_parsed_or_refused(key: str, value: object) -> None:
    chunk = {"chunker": "fastcdc", "min_size": 64, "avg_size": 256, "max_size": 1024, "hash": "sha256"}
    document = {"version": 1, "store_id": FORMAT.store_id, "chunk": chunk}
    (chunk if key in chunk else document)[key] = value
    try:
        text = tomli_w.dumps(document)
    except TypeError:  # a None inside
        return
    parsed_or_refused(text)


def test_a_newer_format_says_what_to_do() -> None:
    with pytest.raises(StoreFormatError) as caught:
        parse('version = 7\nshape = "other"\n', "/srv/kv/store.toml")
    assert str(caught.value) == (
        "/srv/kv/store.toml: the store is of format 7, this kvtool reads 1; upgrade kvtool"
    )
    assert caught.value.exit_code == 10


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("version = 1", "version = 0", "version is not a number from 1"),
        ("version = 1", "version = true", "version is not a number from 1"),
        ("0123", "0x23", "store_id is not 32 hex digits"),
        ("[chunk]", "[chunks]", "the section chunk is absent"),
        ("fastcdc", "rabin", 'chunk.chunker is not "fastcdc"'),
        ("sha256", "md5", 'chunk.hash is not "sha256"'),
        ("16384", "'16 KiB'", "chunk sizes are not whole numbers of bytes"),
        ("min_size = 16384\n", "", "chunk sizes are not whole numbers of bytes"),
        ("16384", "0", "chunk sizes are not in order"),
        ("65536", "1000000", "chunk sizes are not in order"),
        ("hash", "colour = 1\nhash", "chunk.'colour' is no key of format 1"),
    ],
)
def test_what_is_wrong_is_named(old: str, new: str, message: str) -> None:
    with pytest.raises(StoreFormatError) as caught:
        parse(dump(FORMAT).replace(old, new, 1), "store.toml")
    assert caught.value.message == f"store.toml: {message}"


def test_reading_the_file(tmp_path: Path) -> None:
    path = tmp_path / "store.toml"
    with pytest.raises(NoStore, match=r"there is no store at .*kvtool mount"):
        read(path)
    with pytest.raises(NoStore):
        read(path / "not" / "a directory")
    path.write_text(dump(FORMAT))
    assert read(path) == FORMAT
    with pytest.raises(NoStore):
        read(path / "store.toml")
    path.write_bytes(b"\xff")
    with pytest.raises(StoreFormatError, match="not UTF-8"):
        read(path)


def test_a_huge_file_is_not_read_to_the_end(tmp_path: Path) -> None:
    path = tmp_path / "store.toml"
    with path.open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(StoreFormatError, match="too long"):
        read(path)
