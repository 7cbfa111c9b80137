"""fsck, the check: does everything hold that store and stub tree promise? Read-only, also beside a mount.

It reads every pack's header, trailer and footer, the catalog and every stub, and no chunk data: that a
chunk's bytes are right, reading them tells.
"""

import os
import time
from collections.abc import Callable

from kvtool.store import lock
from kvtool.store.check_packs import check_packs, open_catalog
from kvtool.store.check_places import check_folder, check_format, judge_format
from kvtool.store.check_stubs import check_stubs
from kvtool.store.findings import Code, Finding, Report
from kvtool.store.layout import Layout
from kvtool.store.look import Look
from kvtool.store.watch import NOBODY, Watch

_LOOKS = 4  # further looks that must find the same
_PAUSE = 0.25  # seconds between two looks, doubled each time they do


def check_store(
    layout: Layout, *, pause: Callable[[float], object] = time.sleep, watch: Watch = NOBODY
) -> Report:
    """What is wrong with a store.

    Beside a mount it looks again, since what a save or a collection is just doing looks like damage: what is
    not there any more, or has changed, is left out. Raises NoStore, StoreTooNew, OSError.
    """
    report = look_at(layout, in_use=in_use(layout), watch=watch).report()
    report.in_use = report.in_use or in_use(layout)
    same = 0
    while report.in_use and same < _LOOKS and any(map(_may_pass, report.findings)):
        pause(_PAUSE * 2**same)
        again = {_content(found) for found in look_at(layout, in_use=in_use(layout), watch=watch).findings}
        kept = [found for found in report.findings if not _may_pass(found) or _content(found) in again]
        same = same + 1 if len(kept) == len(report.findings) else 0
        report.findings = kept
    return report


def look_at(layout: Layout, *, in_use: bool, watch: Watch = NOBODY) -> Look:
    """One look. What is work in progress while the store is in use, is a leftover when it is not.

    `watch` is told of packs and snapshots.
    """
    look = Look(layout, in_use, watch)
    try:
        check_format(look)
        check_folder(look)
        open_catalog(look)
        check_packs(look)
        if look.store_id is not None:
            check_stubs(look)
        judge_format(look)
    finally:
        look.close()
    return look


def in_use(layout: Layout) -> bool:
    """Whether a mount, or another command that writes, has the store locked. Raises OSError."""
    return os.path.isfile(layout.lock) and lock.is_held(layout)


def _may_pass(found: Finding) -> bool:
    return found.code is not Code.ORPHAN


def _content(found: Finding) -> tuple[Code, str, str]:
    return found.code, found.path, found.message
