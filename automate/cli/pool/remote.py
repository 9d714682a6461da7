"""A desk at another machine's `pool serve`: signed messages, and what anybody may read there.

Never sends a key, and takes no deed of the owner."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import quote

import requests

from automate.errors import ApiError, PoolError
from automate.pools.deeds import receipt_of
from automate.pools.keys import is_address
from automate.pools.messages import Receipt

TIMEOUT = 60.0
LEAST = 6


class HttpDesk:
    """What `pool serve` at `url` answers. Raises ApiError where it can't be reached, PoolError where it refuses."""

    def __init__(self, url: str) -> None:
        if not url.startswith(("http://", "https://")):
            raise PoolError(f"{url!r} is no address", where="--url", todo="give it as http://host:8642")
        self.url = url.rstrip("/")
        self.session = requests.Session()
        self.session.trust_env = False  # no password of a .netrc goes there

    def send(self, signed: Mapping[str, object]) -> Receipt:
        found = self._call("POST", "/message", signed)
        if not isinstance(found, dict) or "id" not in found:
            raise _refusal(found)
        return receipt_of(found)

    def ask(self, what: str, **given: str | int | None) -> object:
        """What HTTP has: pools, pool, leaderboard, processes, models, datasets, dataset, balance; find by those."""
        if what == "find":
            return self._find(str(given["kind"]), str(given["given"]))
        routes = {"pools": "/pools", "pool": "/pools/{id}", "leaderboard": "/leaderboard/{id}"}
        if what not in routes:
            raise PoolError(f"{what} can't be asked over HTTP", where="--url",
                            todo="send a message instead: pool send --action ... --url ...")
        path = routes[what].format(id=quote(str(given.get("id", "")), safe=""))
        return self._call("GET", path)

    def do(self, what: str, **given: str | int | None) -> object:
        raise PoolError(f"{what} is for the workspace's own machine", where="--url", todo="leave --url away")

    def _find(self, kind: str, given: str) -> str:
        """Whole ids and names as they stand: the other end knows what they mean; beginnings of pool ids from its list.
        """
        if kind == "pool" and not is_address(given) and len(given) >= LEAST:
            ids = [id for id in _ids(self.ask("pools")) if id.startswith(given)]
            if len(ids) == 1:
                return ids[0]
        return given

    def _call(self, method: str, path: str, body: Mapping[str, object] | None = None) -> object:
        try:
            answer = self.session.request(method, self.url + path, json=body, timeout=TIMEOUT, allow_redirects=False,
                                          headers={"Accept": "application/json"})
            found = answer.json()
        except (requests.RequestException, ValueError) as error:
            raise ApiError(f"no answer that can be read: {error}", where=self.url,
                           todo="see that 'pool serve' runs there and can be reached from here") from None
        if answer.status_code >= 400 and not (isinstance(found, dict) and "id" in found):
            raise _refusal(found)
        return found


def _ids(rows: object) -> list[str]:
    return [str(one["id"]) for one in rows] if isinstance(rows, list) else []


def _refusal(found: object) -> PoolError:
    words = found if isinstance(found, dict) else {}
    where, todo = (str(words[name]) if words.get(name) is not None else None for name in ("where", "todo"))
    return PoolError(str(words.get("error", "the server gave no reason")), where=where, todo=todo)
