"""Sizes and durations as people write them."""

import re

from kvtool.errors import UsageError

_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(|B|K|KB|KiB|M|MB|MiB|G|GB|GiB|T|TB|TiB)\s*", re.IGNORECASE)
_POWERS = {"": 0, "b": 0, "k": 1, "m": 2, "g": 3, "t": 4}
_DURATION = re.compile(r"\s*(?:(\d+)\s*d)?\s*(?:(\d+)\s*h)?\s*(?:(\d+)\s*m)?\s*(?:(\d+(?:\.\d+)?)\s*s?)?\s*")


def parse_size(text: str) -> int:
    """Bytes of a size such as "64 MiB", "64M" (both powers of 1024), "5 MB" (powers of 1000) or "4096".

    Raises UsageError when it is none or not a whole number of bytes.
    """
    match = _SIZE.fullmatch(text)
    if match is None:
        raise UsageError(f"{text!r} is not a size", hint="write it like 64 MiB")
    number, unit = match[1], match[2].lower()
    base = 1000 if len(unit) == 2 and unit.endswith("b") else 1024
    value = (
        float(number) * base ** _POWERS[unit[:1]]
        if "." in number
        else int(number) * base ** _POWERS[unit[:1]]
    )
    if value != int(value):
        raise UsageError(f"{text!r} is not a whole number of bytes", hint="write it like 64 MiB")
    return int(value)


def format_size(size: int) -> str:
    """`size` bytes in B, KiB, MiB, GiB or TiB, exact when it is a whole number of them, else one decimal."""
    value, unit = float(size), "B"
    for name in ("KiB", "MiB", "GiB", "TiB"):
        if abs(value) < 1024:
            break
        value, unit = value / 1024, name
    return f"{int(value)} {unit}" if value == int(value) else f"{value:.1f} {unit}"


def parse_duration(text: str) -> float:
    """Seconds of a duration such as "90s", "1h30m", "2d" or "45". Raises UsageError."""
    match = _DURATION.fullmatch(text)
    if match is None or not any(match.groups()):
        raise UsageError(f"{text!r} is not a duration", hint="write it like 90s or 1h30m")
    days, hours, minutes, seconds = (float(part or 0) for part in match.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


def format_duration(seconds: float) -> str:
    """`seconds` as in "1h30m" or "0.5s"; parse_duration reads it back."""
    if seconds != int(seconds):
        return f"{seconds}s"
    rest, parts = int(seconds), []
    for name, length in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        count, rest = divmod(rest, length)
        if count:
            parts.append(f"{count}{name}")
    return "".join(parts) or "0s"
