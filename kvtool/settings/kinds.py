"""The kinds of values: sizes, durations, paths, whole numbers, true or false, secrets; and how each is read.

A value is read the same way wherever it stands: text in the environment and in flags, text or TOML's own
type in files. pydantic takes a ValueError as "not valid"; a TypeError or an error of ours would go
through it. Nor may a ValueError have bytes that are no UTF-8, as a value may: pydantic then fails.
"""

import os
import re
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Secret, SecretStr

from kvtool.core import address
from kvtool.core.score import Score
from kvtool.core.units import parse_duration, parse_size
from kvtool.errors import UsageError

REDACTED = "********"

_COUNT = re.compile(r"[0-9]{1,18}")
_TOKEN = re.compile(r"([A-Za-z0-9._~+/=-]{16,256})?")  # what fits into a header of HTTP, or none


KindName = Literal["size", "duration", "path", "count", "bool", "secret", "address", "expression", "choice"]


class Kind:
    """Marks a field's type with how its values are written; a field without it is a choice."""

    def __init__(self, name: KindName) -> None:
        self.name = name


def _read_size(raw: object) -> object:
    if isinstance(raw, str):
        try:
            return parse_size(raw)
        except UsageError:
            raise ValueError("not a size") from None
    return _read_count(raw)


def _read_duration(raw: object) -> object:
    if isinstance(raw, str):
        try:
            return parse_duration(raw)
        except UsageError:
            raise ValueError("not a duration") from None
    if isinstance(raw, bool):
        raise ValueError("not a duration")  # noqa: TRY004
    return raw


def _read_count(raw: object) -> object:
    if isinstance(raw, bool | float) or (isinstance(raw, str) and not _COUNT.fullmatch(raw)):
        raise ValueError("not a whole number")
    return raw


def _read_path(raw: object) -> object:
    if not isinstance(raw, str | Path) or "\0" in str(raw):
        raise ValueError("not a path")
    path = Path(os.path.expanduser(raw))
    if not path.is_absolute():
        raise ValueError("a relative path")
    return path


def _read_bool(raw: object) -> object:
    words = {"true": True, "false": False}
    if not isinstance(raw, bool | str) or raw not in (True, False, *words):
        raise ValueError("not true or false")
    return words[raw] if isinstance(raw, str) else raw


def _read_address(raw: object) -> object:
    if raw == "":
        return raw
    try:
        address.parse(str(raw))
    except UsageError:
        raise ValueError("not an address") from None
    return raw


def _read_expression(raw: object) -> object:
    try:
        Score(str(raw))
    except UsageError as error:
        raise ValueError(error.message) from None
    return raw


def _read_secret(raw: object) -> object:
    return raw.get_secret_value() if isinstance(raw, Secret) else raw


def _check_token(secret: SecretStr) -> SecretStr:
    if not _TOKEN.fullmatch(secret.get_secret_value()):
        raise ValueError("not a token")
    return secret


Size = Annotated[int, BeforeValidator(_read_size), Kind("size")]
Duration = Annotated[float, BeforeValidator(_read_duration), Kind("duration")]
AbsolutePath = Annotated[Path, BeforeValidator(_read_path), Kind("path")]
Count = Annotated[int, BeforeValidator(_read_count), Kind("count")]
Switch = Annotated[bool, BeforeValidator(_read_bool), Kind("bool")]
Address = Annotated[str, BeforeValidator(_read_address), Kind("address")]
Expression = Annotated[str, BeforeValidator(_read_expression), Kind("expression")]
# A setting of this type is shown nowhere: not in tables, TOML, JSON, errors, nor by repr() in a log.
SecretText = Annotated[SecretStr, BeforeValidator(_read_secret), Kind("secret")]
Token = Annotated[SecretText, AfterValidator(_check_token)]


def hidden(raw: Any) -> Secret[Any]:
    """A secret's raw value, so that nothing prints it by accident; reading takes it out again."""
    return raw if isinstance(raw, Secret) else Secret(raw)
