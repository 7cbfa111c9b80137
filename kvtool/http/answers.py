"""How the API answers: JSON from dataclasses, errors all of one shape."""

import json
from dataclasses import asdict, dataclass, is_dataclass
from typing import Any
from urllib.parse import quote

from fastapi import Response

from kvtool.errors import Damage, KvtoolError, NoSnapshot, NoStore, UsageError
from kvtool.store.control import NotRunning


@dataclass(kw_only=True)
class Failure:
    """What went wrong: a word for programs, and a line for people."""

    code: str
    message: str


@dataclass(kw_only=True)
class Failed:
    """Every answer of 400 and above."""

    error: Failure


_STATUS: tuple[tuple[type[KvtoolError], int], ...] = (
    (NoSnapshot, 404),
    (UsageError, 400),
    (NoStore, 503),
    (NotRunning, 503),
    (Damage, 500),
)
_STATUS_BY_CODE = {kind.code: status for kind, status in _STATUS}


def answer(data: Any, status: int = 200) -> Response:
    """`data`, a dataclass or what JSON can hold; bytes of names that are no UTF-8 come as escapes."""
    plain = asdict(data) if is_dataclass(data) and not isinstance(data, type) else data
    return Response(json.dumps(plain), status, media_type="application/json")


def failed(status: int, code: str, message: str) -> Response:
    """An error."""
    return answer(Failed(error=Failure(code=code, message=message)), status)


def status_of(error: KvtoolError) -> int:
    """The status for an error, ours or one that the mount told."""
    for kind, status in _STATUS:
        if isinstance(error, kind):
            return status
    return _STATUS_BY_CODE.get(error.code, 500)


def path_to(name: str) -> str:
    """The path of a snapshot in the API, whatever bytes its name has."""
    return "/v1/snapshots/" + quote(name, errors="surrogateescape")
