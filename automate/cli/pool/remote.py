"""A desk at another machine's `pool serve`: signed messages, and what anybody may read there.

Never sends a key, and takes no deed of the owner."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from urllib.parse import quote

import requests

from automate.errors import ApiError, PoolError
from automate.pools.amounts import as_whole
from automate.pools.deeds import receipt_of
from automate.pools.keys import Key, is_address
from automate.pools.messages import Receipt

TIMEOUT = 60.0
LEAST = 6
ROUTES = {"pools": "/pools", "pool": "/pools/{id}", "leaderboard": "/leaderboard/{id}", "processes": "/processes"}


class HttpDesk:
    """What `pool serve` at `url` answers. `key`: signs what has to be asked by a message.

    Raises ApiError where it can't be reached, PoolError where it refuses.
    """

    def __init__(self, url: str, key: Callable[[], Key]) -> None:
        if not url.startswith(("http://", "https://")):
            raise PoolError(f"{url!r} is no address", where="--url", todo="give it as http://host:8642")
        self.url, self.key = url.rstrip("/"), key
        self.session = requests.Session()
        self.session.trust_env = False  # no password of a .netrc goes there

    def send(self, signed: Mapping[str, object]) -> Receipt:
        found = self._call("POST", "/message", signed)
        if not isinstance(found, dict) or "id" not in found:
            raise _refusal(found)
        return receipt_of(found)

    def ask(self, what: str, **given: str | int | None) -> object:
        """What HTTP has: pools, pool, leaderboard, processes; models and balance by a message; find by those."""
        if what == "find":
            return self._find(str(given["kind"]), str(given["given"]))
        if what == "balance":
            told = self._told("token", "Balance", Recipient=str(given["account"]))
            return {"account": given["account"], "balance": int(told), "entries": []}
        if what == "models" and given.get("dataset") is None:
            return [{**one, "number": one["id"], "pools": None} for one in _rows(json.loads(self._told("pool",
                                                                                                 "Get-Models")))]
        if what not in ROUTES:
            raise PoolError(f"{what} can't be asked over HTTP", where="--url",
                            todo="ask on the workspace's own machine, or send a message: pool send --action ...")
        return as_whole(self._call("GET", ROUTES[what].format(id=quote(str(given.get("id", "")), safe=""))))

    def do(self, what: str, **given: str | int | None) -> object:
        raise PoolError(f"{what} is for the workspace's own machine", where="--url", todo="leave --url away")

    def _find(self, kind: str, given: str) -> str:
        """A process by its name, a pool by the beginning of its id; the other end knows what the rest means."""
        if kind in ("account", "dataset"):
            return next((str(one["id"]) for one in _rows(self.ask("processes")) if one["name"] == given), given)
        if kind == "pool" and not is_address(given) and len(given) >= LEAST:
            ids = [str(one["id"]) for one in _rows(self.ask("pools")) if str(one["id"]).startswith(given)]
            if len(ids) == 1:
                return ids[0]
        return given

    def _told(self, target: str, action: str, **tags: str) -> str:
        """The Data of the answer to a message."""
        receipt = self.send(self.key().sign(self._find("account", target), action, tags=tags))
        if receipt.state != "handled" or not receipt.replies:
            raise PoolError(receipt.error or f"no answer to {action}", where=self.url)
        return str(receipt.replies[0].get("Data"))

    def _call(self, method: str, path: str, body: Mapping[str, object] | None = None) -> object:
        try:
            answer = self.session.request(method, self.url + path, json=body, timeout=TIMEOUT, allow_redirects=False,
                                          headers={"Accept": "application/json"})
            found = answer.json()
        except (requests.RequestException, ValueError) as error:
            raise ApiError(_trouble(error), where=self.url,
                           todo="see that 'pool serve' runs there and can be reached from here") from None
        if answer.status_code >= 400 and not (isinstance(found, dict) and "id" in found):
            raise _refusal(found)
        return found


def _trouble(error: Exception) -> str:
    """What went wrong on the way, in a line."""
    if isinstance(error, requests.exceptions.SSLError):
        return "no safe connection: its certificate can't be trusted, or it speaks no TLS"
    if isinstance(error, requests.Timeout):
        return f"no answer within {TIMEOUT:g} s"
    if isinstance(error, requests.exceptions.InvalidURL | requests.exceptions.InvalidSchema):
        return "this is no address of a machine"
    if isinstance(error, requests.ConnectionError):
        return "nobody answers there: the connection was refused, cut off, or there is no such machine"
    return "an answer that is not of 'pool serve'"


def _rows(found: object) -> list[dict[str, object]]:
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def _refusal(found: object) -> PoolError:
    words = found if isinstance(found, dict) else {}
    where, todo = (str(words[name]) if words.get(name) is not None else None for name in ("where", "todo"))
    return PoolError(str(words.get("error", "the server gave no reason")), where=where, todo=todo)
