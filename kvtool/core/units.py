"""Sizes and durations as people write them."""

import math
import re
from decimal import Decimal
from fractions import Fraction

from kvtool.errors import UsageError

# The digits are bounded because int() itself refuses thousands of them, with an error of its own.
_SIZE = re.compile(
    r"\s*(\d{1,30}(?:\.\d{1,30})?)\s*(|B|K|KB|KiB|M|MB|MiB|G|GB|GiB|T|TB|TiB)\s*", re.IGNORECASE | re.ASCII
)
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")
_DURATION = re.compile(
    r"\s*(?:(\d+)\s*d)?\s*(?:(\d+)\s*h)?\s*(?:(\d+)\s*m)?\s*(?:(\d+(?:\.\d+)?)\s*s?)?\s*", re.ASCII
)


def parse_size(text: str) -> int:
    """Bytes of a size such as "64 MiB", "64M" (both powers of 1024), "5 MB" (powers of 1000) or "4096".

    Raises UsageError when it is none or not a whole number of bytes.
    """
    match = _SIZE.fullmatch(text)
    if match is None:
        raise UsageError(f"'{text}' is not a size", hint="write it like 64 MiB")
    unit = match[2].lower()
    base = 1000 if len(unit) == 2 else 1024
    value = Fraction(match[1]) * base ** "bkmgt".index(unit[:1] or "b")
    if value.denominator != 1:
        raise UsageError(f"'{text}' is not a whole number of bytes", hint="write it like 64 MiB")
    return int(value)


def format_size(size: int) -> str:
    """`size` bytes in B, KiB, MiB, GiB or TiB, for people: "64 MiB", and with one decimal when that rounds.

    "1.5 KiB" may stand for a few bytes more or less; exact_size does not round.
    """
    power = 0
    # 1023.95 of a unit and more would be printed as 1024.0 of it.
    while power + 1 < len(_UNITS) and abs(size) * 20 >= 1024**power * 20479:
        power += 1
    whole, rest = divmod(size, 1024**power)
    return f"{size / 1024**power:.1f} {_UNITS[power]}" if rest else f"{whole} {_UNITS[power]}"


def exact_size(size: int) -> str:
    """`size` bytes (0 or more) in the largest unit that needs no fraction; parse_size reads it back."""
    power = 0
    while size and power + 1 < len(_UNITS) and size % 1024 ** (power + 1) == 0:
        power += 1
    return f"{size // 1024**power} {_UNITS[power]}"


def parse_duration(text: str) -> float:
    """Seconds of a duration such as "90s", "1h30m", "2d" or "45". Raises UsageError."""
    match = _DURATION.fullmatch(text)
    if match is None or not any(match.groups()):
        raise UsageError(f"'{text}' is not a duration", hint="write it like 90s or 1h30m")
    days, hours, minutes, seconds = (float(part or 0) for part in match.groups())
    total = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    if math.isinf(total):
        raise UsageError(f"'{text}' is too long a duration", hint="write it like 90s or 1h30m")
    return total


def format_duration(seconds: float) -> str:
    """`seconds` (finite, 0 or more) as in "1h30m" or "0.5s"; parse_duration reads it back."""
    if seconds != int(seconds):
        return f"{Decimal(repr(seconds)):f}s"  # never 1e-07, which is no duration
    rest, parts = int(seconds), []
    for name, length in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        count, rest = divmod(rest, length)
        if count:
            parts.append(f"{count}{name}")
    return "".join(parts) or "0s"
