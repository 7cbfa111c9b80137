"""The application: its routers, how errors are told, and its OpenAPI document."""

import errno
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.routing import Match

from kvtool import __version__
from kvtool.errors import KvtoolError, reason
from kvtool.http.access import is_page
from kvtool.http.answers import Failed, failed, status_of
from kvtool.http.render import failure
from kvtool.http.routes import collection, logs, metrics, pages, snapshots, status
from kvtool.http.source import Source

_ABOUT = """What `kvtool mount` serves with `http.listen` set. Sizes are bytes; times are ISO 8601 in UTC, ""
for never. DELETE, PATCH and POST need the header `Authorization: Bearer TOKEN`; so does everything where the
API is reached from other machines."""
_ERRORS: dict[int | str, dict[str, Any]] = {
    400: {"model": Failed, "description": "A name or a value that cannot be"},
    401: {"model": Failed, "description": "Without the right token"},
    403: {"model": Failed, "description": "From the page of another site, or http.token is not set"},
    404: {"model": Failed, "description": "No such snapshot, or no such path"},
    408: {"model": Failed, "description": "The body did not arrive in time"},
    413: {"model": Failed, "description": "The body is too large"},
    421: {"model": Failed, "description": "The Host header names another server"},
    422: {"model": Failed, "description": "A parameter or a body that is not as described"},
    500: {"model": Failed, "description": "It failed; the message says why"},
    503: {"model": Failed, "description": "The mount does not answer, or too many requests at once"},
}


_ROUTERS = [module.router for module in (snapshots, collection, status, logs, metrics, pages)]


def create_app(source: Source | None) -> FastAPI:
    """The application on `source`; without one it can only describe itself."""
    app = FastAPI(
        title="kvtool",
        version=__version__,
        description=_ABOUT,
        openapi_url="/v1/openapi.json",
        docs_url=None,  # both load scripts of other hosts
        redoc_url=None,
        responses=_ERRORS,
    )
    app.state.source = source
    for router in _ROUTERS:
        app.include_router(router)
    app.add_exception_handler(KvtoolError, _on_error)
    app.add_exception_handler(OSError, _on_os_error)
    app.add_exception_handler(HTTPException, _on_http_error)
    app.add_exception_handler(RequestValidationError, _on_invalid)
    app.add_exception_handler(Exception, _on_bug)
    return app


def _failed(request: Request, status: int, code: str, message: str) -> Response:
    return (failure if is_page(request.scope) else failed)(status, code, message)


async def _on_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, KvtoolError)  # noqa: S101  (as it was registered)
    return _failed(request, status_of(error), error.code, str(error))


async def _on_os_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, OSError)  # noqa: S101
    busy = error.errno in {errno.EMFILE, errno.ENFILE, errno.EAGAIN}
    return _failed(request, 503 if busy else 500, "os", reason(error))


async def _on_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101
    response = _failed(request, error.status_code, "http", str(error.detail))
    if error.status_code == 405:  # one path has several routes, a method each
        routes = [route for router in _ROUTERS for route in router.routes if isinstance(route, APIRoute)]
        matching = [route for route in routes if route.matches(request.scope)[0] != Match.NONE]
        response.headers["allow"] = ", ".join(
            sorted({each for route in matching for each in route.methods or ()})
        )
    return response


async def _on_invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)  # noqa: S101
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"])
    return _failed(request, 422, "invalid", f"{where}: {first['msg']}")


async def _on_bug(request: Request, _error: Exception) -> Response:
    # The server logs it, with its traceback.
    return _failed(request, 500, "internal", "an internal error; the mount's log has it")
