"""What several routes take: the source, names of any bytes, and pages of bounded size."""

from typing import Annotated, Any
from urllib.parse import parse_qsl

from fastapi import Depends, Path, Query, Request, Security
from fastapi.security import HTTPBearer
from starlette.convertors import Convertor, register_url_convertor

from kvtool.http.source import Source

PAGE_MAX = 1000
NAMES_MAX = 1000


class _NameConvertor(Convertor[str]):
    """The rest of the path as a snapshot's name: of any bytes, line breaks too."""

    regex = r"[\s\S]+"

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


register_url_convertor("snapshot", _NameConvertor())


def _source(request: Request) -> Source:
    source: Source = request.app.state.source
    return source


def _names(
    request: Request,
    name: Annotated[  # noqa: ARG001  (it describes; the names are read below, as bytes)
        list[str], Query(max_length=NAMES_MAX, description="a snapshot; given once for each")
    ],
) -> list[str]:
    return list(dict.fromkeys(query_values(request, "name")))


def query_values(request: Request, key: str) -> list[str]:
    """The values of a parameter of the query, of any bytes."""
    pairs = parse_qsl(request.scope["query_string"].decode("latin-1"), errors="surrogateescape")
    return [value for its, value in pairs if its == key]


def query_value(request: Request, key: str) -> str:
    """The last value of a parameter of the query, of any bytes; empty when there is none."""
    return next(reversed(query_values(request, key)), "")


# The token is asked for by `access`, before any route runs; this tells of it in the API's description.
Changes = Security(HTTPBearer(auto_error=False, description="http.token", scheme_name="token"))
SourceOf = Annotated[Source, Depends(_source)]
# Of type Any, since a text that pydantic takes has no bytes that are no UTF-8.
Name = Annotated[
    Any,
    Path(
        description="the snapshot's name: its path in the mount, percent-encoded, with its slashes",
        json_schema_extra={"type": "string", "minLength": 1},
    ),
]
Names = Annotated[list[str], Depends(_names)]
Limit = Annotated[int, Query(ge=1, le=PAGE_MAX, description="how many at most")]
Offset = Annotated[int, Query(ge=0, le=1 << 40, description="how many to leave out at the beginning")]
