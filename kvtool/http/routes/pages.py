"""The page: what the API has, for people. It works without JavaScript; what changes something is a form.

Who may do what is decided in `access`, before any of this runs.
"""

import os
import stat
from functools import cache
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import unquote

from fastapi import APIRouter, Depends, Query, Request, Response

from kvtool.errors import IndexDamaged, NoSnapshot
from kvtool.http import drawings
from kvtool.http.access import Refused, Visitor, visitor_of
from kvtool.http.parameters import Name, Offset, SourceOf, query_value
from kvtool.http.render import onward_to, own_path, page, path_of
from kvtool.http.routes.snapshots import Key, Order, dissected, select
from kvtool.http.source import Source
from kvtool.store import names, pieces, stubs
from kvtool.store.store import Store

router = APIRouter(include_in_schema=False)
ROWS = 100  # of a table
_LINES = 200
_BEST = 5  # snapshots that are offered for deletion on the first page
_TABLED = 24  # samples of the history that are written out
_STATIC = Path(__file__).parents[1] / "static"
_KINDS = {"style.css": "text/css; charset=utf-8", "icon.svg": "image/svg+xml"}
Level = Literal["debug", "info", "warning", "error"]


def _visitor(request: Request) -> Visitor:
    return visitor_of(request.scope)


Who = Annotated[Visitor, Depends(_visitor)]


# -- what there is


@router.get("/")
async def first(source: SourceOf, who: Who) -> Response:
    """Totals, what was saved since the start, and the best to delete."""
    status, history = await source.ask("status"), await source.ask("history")
    found = await source.overview.now()
    rows = select(found.listing, "score", "down", "", ())
    samples = history["samples"]
    times = [each["time"] for each in samples]
    top = max(samples[-1]["saved"], 1)
    return page(
        "first.html",
        who,
        status=200,
        mount=status,
        count=len(rows),
        size=sum(row.size for row in rows),
        live=found.live_bytes,
        dead=max(0, status["pack_bytes"] - found.live_bytes),
        damaged=found.listing.damaged[:ROWS],
        best=[row for row in rows[:_BEST] if row.score > 0],
        widest=max((row.size for row in rows), default=0),
        top=top,
        saved=drawings.curve(times, [each["saved"] for each in samples], top),
        new=drawings.curve(times, [each["new"] for each in samples], top),
        samples=samples[:: -(-len(samples) // _TABLED)],
        last=samples[-1],
    )


@router.get("/snapshots")
async def listed(
    source: SourceOf,
    who: Who,
    request: Request,
    sort: Key = "name",
    order: Order = "up",
    prefix: Annotated[str, Query(max_length=4096)] = "",
    label: Annotated[str, Query(max_length=512)] = "",
    offset: Offset = 0,
    limit: Annotated[int, Query(ge=1, le=ROWS)] = ROWS,
) -> Response:
    """The list as a table."""
    prefix, label = query_value(request, "prefix"), query_value(request, "label")  # of any bytes
    found = (await source.overview.now()).listing
    rows = select(found, sort, order, prefix, [label] if label else [])
    return page(
        "snapshots.html",
        who,
        rows=rows[offset : offset + limit],
        total=len(rows),
        size=sum(row.size for row in rows),
        unique=sum(row.unique_bytes for row in rows),
        widest=max((row.size for row in rows), default=0),
        damaged=found.damaged[:ROWS],
        sort=sort,
        order=order,
        prefix=prefix,
        label=label,
        offset=offset,
        limit=limit,
        usual=ROWS,
    )


@router.get("/snapshot/{name:snapshot}")
async def one(source: SourceOf, who: Who, name: Name) -> Response:
    """One snapshot: what it costs, where it came from, and a map of its chunks."""
    its = await dissected(source, name)
    letters = drawings.letters_of(its.parts)
    rows = its.parts[-ROWS:]
    return page(
        "snapshot.html", who, its=its, rows=rows, letters=letters, cells=await _cells(source, name, letters)
    )


async def _cells(source: Source, name: str, letters: dict[str, str]) -> list[drawings.Cell]:
    others = (await source.overview.recent(5.0)).others

    def draw(store: Store) -> list[drawings.Cell]:
        path = names.existing_stub(store.layout, name)
        found = pieces.pieces(store, path, 0, 1 << 40, others)
        return drawings.chunk_map(found.chunks, found.size, found.total, letters)

    return await source.read(draw)


@router.get("/tree")
async def tree(
    source: SourceOf,
    who: Who,
    request: Request,
    tokens: Annotated[int, Query(ge=0, le=1 << 31)] = 0,
) -> Response:
    """The prefix tree from one node on."""
    of = query_value(request, "of")
    found = await source.tree.now()
    kin = drawings.Kin(found)
    top = kin.find(of, tokens) if of else 0
    if top is None:
        raise NoSnapshot(f"there is no snapshot '{of}' with a token list")
    picture = kin.picture(top)
    return page(
        "tree.html",
        who,
        top=picture,
        height=picture.height,
        turns=kin.nodes[top].snapshots[:ROWS],
        way=[kin.box(number) for number in kin.way(top)],
        without_tokens=found.without_tokens[:ROWS],
        damaged=found.damaged[:ROWS],
        beside=len(found.without_tokens),
    )


@router.get("/logs")
async def logs(source: SourceOf, who: Who, level: Level = "info") -> Response:
    """The last lines of the mount's log, the newest first."""
    found = await source.ask("logs", level=level, since=0.0, after=0, limit=_LINES)
    return page("logs.html", who, lines=found["lines"][::-1], level=level, most=_LINES)


@router.get("/gc")
async def collection(source: SourceOf, who: Who) -> Response:
    """What the collection does, and did."""
    return page("gc.html", who, progress=await source.ask("collection"), would_free=None)


@router.get("/static/{name}")
async def static(name: str) -> Response:
    """The style sheet and the icon."""
    if name not in _KINDS:
        raise NoSnapshot("there is no such file")
    return Response(_content(name), media_type=_KINDS[name], headers={"cache-control": "max-age=300"})


@cache
def _content(name: str) -> bytes:
    return (_STATIC / name).read_bytes()


# -- what changes something: asked for once more, and done by a form


@router.get("/delete/{name:snapshot}")
async def ask_to_delete(source: SourceOf, who: Who, name: Name) -> Response:
    """Whether it is meant. What cannot be read any more can still be deleted, if it is a file."""
    its, damage = None, ""
    try:
        its = await dissected(source, name)
    except IndexDamaged as error:
        mode = os.lstat(names.existing_stub(source.layout, name)).st_mode
        if isinstance(error, NoSnapshot) or not stat.S_ISREG(mode):
            raise
        damage = error.message
    return page("delete.html", who, its=its, damage=damage, name=name, onward=path_of("delete", name))


@router.post("/delete/{name:snapshot}")
async def delete(source: SourceOf, who: Who, name: Name) -> Response:
    """Deletes a snapshot."""
    names.existing_stub(source.layout, name)
    await source.ask("delete", name=name)
    return _done(who, f"{name} is deleted. The next collection frees its space.", "/snapshots")


@router.get("/label/{name:snapshot}")
async def ask_for_labels(source: SourceOf, who: Who, name: Name) -> Response:
    """A snapshot's labels, each with a form of its own: what is not touched stays as it is."""
    labels = stubs.attributes(names.existing_stub(source.layout, name)).labels
    return page("label.html", who, name=name, labels=labels, onward=path_of("label", name))


@router.post("/label/{name:snapshot}")
async def label(source: SourceOf, who: Who, name: Name) -> Response:
    """Sets or removes a label: one that there is (`known`, percent-encoded), or a new one."""
    names.existing_stub(source.layout, name)
    known = unquote(who.form.get("known", ""), errors="surrogateescape")
    key = known or who.form.get("label", "")
    value = None if "remove" in who.form else who.form.get("value", "")
    await source.ask("label", name=name, changes={key: value})
    return _done(who, f"{key} is {'removed' if value is None else 'set'}.", path_of("label", name))


@router.get("/collect")
async def ask_to_collect(source: SourceOf, who: Who) -> Response:
    """Whether it is meant."""
    return page("collect.html", who, progress=await source.ask("collection"), onward="/collect")


@router.post("/collect")
async def collect(source: SourceOf, who: Who) -> Response:
    """Starts a collection, or tells what one would free."""
    if "dry_run" in who.form:
        freed = await source.ask("gc", dry_run=True)
        return page("gc.html", who, progress=await source.ask("collection"), would_free=freed)
    await source.ask("gc", wait=False)
    return _done(who, "The collection has begun.", "/gc")


@router.get("/login")
async def ask_for_token(who: Who, onward: Annotated[str, Query(max_length=8192)] = "/") -> Response:
    """The form for the token."""
    return page("login.html", who, onward=own_path(onward), wrong=False)


@router.post("/login")
async def log_in(who: Who) -> Response:
    """Begins a session."""
    onward = own_path(who.form.get("onward", "/"))
    try:
        return onward_to(onward, who.log_in())
    except Refused as refused:
        return page("login.html", who, status=refused.status, onward=onward, wrong=True)


@router.post("/logout")
async def log_out(who: Who) -> Response:
    """Ends the session."""
    return onward_to("/", who.log_out())


def _done(who: Visitor, notice: str, path: str) -> Response:
    if who.session is not None:
        who.session.notice = notice
    return onward_to(path)
