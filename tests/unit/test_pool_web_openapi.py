"""The OpenAPI document: it names all routes and no other, holds together, and tells the truth about answers."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, TypeAdapter
from starlette.routing import Route

from automate.pools.web import openapi
from automate.pools.web.answers import STATES
from automate.pools.web.openapi import document
from automate.pools.web.public import routes
from tests.unit.pool_support import Bench
from tests.unit.pool_web_rig import served


def refs(value: Any) -> set[str]:
    """All $ref in a document."""
    if isinstance(value, list):
        return {ref for one in value for ref in refs(one)}
    if not isinstance(value, dict):
        return set()
    own = {value["$ref"]} if isinstance(value.get("$ref"), str) else set()
    return own | {ref for one in value.values() for ref in refs(one)}


def operations(found: dict[str, Any]) -> dict[tuple[str, str], dict[str, Any]]:
    return {(path, method.upper()): one for path, methods in found["paths"].items() for method, one in methods.items()}


def test_every_route_is_named_and_no_other() -> None:
    there = {(route.path, method) for route in routes(None)  # type: ignore[arg-type]
             if isinstance(route, Route) for method in (route.methods or set()) - {"HEAD"}}
    assert set(operations(document(1))) == there


def test_it_holds_together() -> None:
    found = document(4096)
    schemas = {f"#/components/schemas/{name}" for name in found["components"]["schemas"]}
    assert refs(found) <= schemas
    assert found["openapi"].startswith("3.1")
    names = [one["operationId"] for one in operations(found).values()]
    assert len(names) == len(set(names))
    for (path, _), one in operations(found).items():
        assert {part["name"] for part in one.get("parameters", [])} == set(re.findall(r"{(\w+)}", path))
        assert all(answer["description"] for answer in one["responses"].values())
    assert "4096" in found["paths"]["/message"]["post"]["responses"]["413"]["description"]
    assert {str(status) for status in STATES.values()} <= set(found["paths"]["/message"]["post"]["responses"])


def test_another_reader_takes_it() -> None:
    models = pytest.importorskip("fastapi.openapi.models")
    read = models.OpenAPI.model_validate(document(4096))
    assert set(read.paths) == set(document(4096)["paths"])


def _pool(bench: Bench) -> None:
    dataset = bench.dataset("siqa")
    sent = bench.send("ann", "token", "Transfer", Recipient=bench.exchange.pool, Quantity="50", X_Dataset=dataset,
                      X_Allocation="Equal")
    assert sent.state == "handled", sent
    bench.send("ann", "pool", "Add-Model", {"name": "m-1", "inference_process": "", "data_tx": "owner/name"})
    joined = bench.send("ann", "pool", "Join-Pool", {"dataset": dataset, "model": "m-1"})
    assert joined.state == "handled", joined


async def test_answers_are_as_it_says(tmp_path: Path) -> None:
    async with served(tmp_path, _pool) as web:
        assert (await web.get("/openapi.json"))[2] == document(web.places.settings.http.message_bytes)
        pools = (await web.get("/pools"))[2]
        assert len(TypeAdapter(list[openapi.ListedPool]).validate_python(pools)) == 1
        assert len(TypeAdapter(list[openapi.Process]).validate_python((await web.get("/processes"))[2])) == 4
        id = pools[0]["id"]
        sent = web.transfer(1)
        openapi.SignedMessage.model_validate(sent)
        shapes: list[tuple[type[BaseModel], int, Any]] = [
            (openapi.OnePool, 200, await web.get(f"/pools/{id}")),
            (openapi.Leaderboard, 200, await web.get(f"/leaderboard/{id}")),
            (openapi.Receipt, 200, await web.post(sent)),
            (openapi.Receipt, 422, await web.post(web.transfer(10**9))),
            (openapi.Receipt, 200, await web.get(f"/message/{sent['Id']}")),
            (openapi.Health, 200, await web.get("/health")),
            (openapi.Problem, 404, await web.get("/pools/none-such")),
            (openapi.Problem, 400, await web.post(b"{}")),
        ]
        for shape, status, (found, _, body) in shapes:
            assert found == status, body
            shape.model_validate(body)
