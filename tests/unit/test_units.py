"""Sizes and durations: what is written is read back, and any other text is refused with one error."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvtool.core.units import exact_size, format_duration, format_size, parse_duration, parse_size
from kvtool.errors import UsageError

few = settings(derandomize=True, max_examples=50, deadline=None)
sizes = st.integers(0, 2**70) | st.builds(lambda n, p: n * 1024**p, st.integers(0, 2000), st.integers(0, 4))


@few
@given(sizes)
def test_an_exact_size_is_read_back(size: int) -> None:
    assert parse_size(exact_size(size)) == size


@few
@given(sizes)
def test_a_size_for_people_is_near(size: int) -> None:
    text = format_size(size)
    assert "1024" not in text.split(" ")[0] or size >= 1023 * 1024**4
    number, unit = text.split(" ")
    bytes_a_unit = parse_size(f"1{unit}")
    assert abs(float(number) * bytes_a_unit - size) <= max(0.051 * bytes_a_unit, size * 1e-12)


@few
@given(st.floats(0, allow_nan=False, allow_infinity=False) | st.integers(0, 10**7).map(float))
def test_a_duration_is_read_back(seconds: float) -> None:
    # Above 2**53 s days and seconds no longer add up to the last bit.
    if seconds < 2**53:
        assert parse_duration(format_duration(seconds)) == seconds


@few
@given(st.text() | st.from_regex(r"[0-9.]{0,40} ?[KMGTikbdhms]{0,4}"))
def test_any_text_is_read_or_refused(text: str) -> None:
    for parse in (parse_size, parse_duration):
        try:
            assert parse(text) >= 0
        except UsageError as error:
            assert error.hint  # noqa: PT017  (either outcome is right)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("4096", 4096),
        ("64 MiB", 64 << 20),
        ("64M", 64 << 20),
        ("64mb", 64 * 10**6),
        ("1.1 GB", 1_100_000_000),  # not with floats
        ("0.5k", 512),
        (" 7 b ", 7),
    ],
)
def test_sizes_as_people_write_them(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "-1", "1e6", "0.1 KiB", "64 Mi", "9" * 5000, "٣", "1 2"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(UsageError, match="is not a"):
        parse_size(text)


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (1000, "1000 B"),
        (1536, "1.5 KiB"),
        (65537, "64.0 KiB"),
        (2**20 - 1, "1.0 MiB"),
        (5 << 40, "5 TiB"),
    ],
)
def test_sizes_for_people(size: int, text: str) -> None:
    assert format_size(size) == text


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("1h30m", 5400), ("2d", 172800), ("45", 45), ("1h 0.5", 3600.5), ("0", 0)],
)
def test_durations_as_people_write_them(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", " ", "1.5h", "-1", "inf", "nan", "9" * 400, "30m1h"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(UsageError, match="duration"):
        parse_duration(text)


def test_a_tiny_duration_is_not_written_as_a_power() -> None:
    assert format_duration(1e-7) == "0.0000001s"
