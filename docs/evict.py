#!/usr/bin/env python3
"""Keep a kvtool store below a size: delete the snapshots that score highest, over the HTTP API.

    evict.py --budget 200G              # what it would delete
    evict.py --budget 200G --delete     # delete it, and collect

The token is read from --token-file, else from KVTOOL_HTTP__TOKEN. Standard library only: copy and change it.
What must stay scores 0, see score.expression: what scores 0 is never deleted. Exits 1 when the store is still
larger than the budget.
"""

import argparse
import json
import os
import sys
import time
import urllib.error
import urllib.request
from bisect import bisect_left
from pathlib import Path
from typing import Any
from urllib.parse import quote

MOST = 100  # snapshots in one round: scores change with what is deleted
UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


class Api:
    """The API of a mount."""

    def __init__(self, url: str, token: str) -> None:
        self.url, self.token = url.rstrip("/"), token

    def __call__(self, path: str, method: str = "GET") -> Any:
        headers = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        request = urllib.request.Request(self.url + path, method=method, headers=headers)  # noqa: S310
        with urllib.request.urlopen(request, timeout=600) as response:  # noqa: S310
            return json.loads(response.read() or "null")

    def stored(self) -> int:
        """Bytes in packs, with those that the next collection frees."""
        return int(self("/v1/status")["pack_bytes"])

    def best_to_delete(self) -> list[dict[str, Any]]:
        page = self(f"/v1/snapshots?sort=score&order=down&limit={MOST}")
        return [row for row in page["snapshots"] if row["score"] > 0]

    def freed_by(self, rows: list[dict[str, Any]]) -> int:
        """What deleting all of them frees: more than the sum, as chunks that only they share go too."""
        names = "&".join("name=" + quote(row["name"], "", errors="surrogateescape") for row in rows)
        return int(self(f"/v1/unique-bytes?{names}")["unique_bytes"]) if rows else 0

    def delete(self, row: dict[str, Any]) -> None:
        try:
            self(row["href"], "DELETE")
        except urllib.error.HTTPError as error:
            if error.code != 404:  # somebody else was quicker
                raise

    def collect(self) -> None:
        """Free what nothing needs, and wait for it."""
        self("/v1/gc", "POST")
        while self("/v1/gc")["stage"]:
            time.sleep(0.2)


def choose(api: Api, need: int) -> list[dict[str, Any]]:
    """The fewest of the best to delete that free `need` bytes together, or all of them."""
    rows = api.best_to_delete()
    count = bisect_left(range(len(rows)), need, key=lambda count: api.freed_by(rows[:count]))
    return rows[:count]


def evict(api: Api, budget: int, *, delete: bool) -> int:
    if delete and api.stored() > budget:
        api.collect()  # perhaps that is enough
    while (stored := api.stored()) > budget:
        rows = choose(api, stored - budget)
        frees = api.freed_by(rows)
        print(f"{stored} bytes are stored, {stored - budget} too many; {len(rows)} snapshots free {frees}")
        for row in rows:
            print(f"{'delete' if delete else 'would delete'} {row['name']!a} (score {row['score']:.3g})")
            if delete:
                api.delete(row)
        if not delete or not frees:
            return 1
        api.collect()
    print(f"{stored} bytes are stored, {budget} may be")
    return 0


def size(text: str) -> int:
    number, unit = (text[:-1], text[-1]) if text[-1:] in UNITS else (text, "")
    return int(float(number) * UNITS.get(unit, 1))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--url", default="http://127.0.0.1:8700", help="where the API listens")
    parser.add_argument("--budget", type=size, required=True, help="bytes, or as 500M, 200G, 2T")
    parser.add_argument("--delete", action="store_true", help="delete; else only say what would be")
    parser.add_argument("--token-file", type=Path, help="a file with the token")
    chosen = parser.parse_args()
    try:
        token = (
            chosen.token_file.read_text() if chosen.token_file else os.environ.get("KVTOOL_HTTP__TOKEN", "")
        )
        return evict(Api(chosen.url, token.strip()), chosen.budget, delete=chosen.delete)
    except urllib.error.HTTPError as error:
        text = error.read().decode(errors="replace")
        print(f"evict: {error.url} answered {error.code}: {text}", file=sys.stderr)
    except OSError as error:
        print(f"evict: {chosen.url}: {error}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
