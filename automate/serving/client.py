"""Requests to one OpenAI-compatible server over one connection pool.

Never retries and never decides what a failure means for a game: it says which kind of failure it was."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Protocol, Self

import aiohttp
import orjson
from tenacity import RetryCallState, wait_random_exponential

from automate.errors import FlockError, ServerError

Messages = Sequence[Mapping[str, object]] | orjson.Fragment
"""Chat messages, or their JSON as it stands."""


@dataclass(frozen=True)
class Address:
    """Where a server listens: a Unix socket, or a base URL such as http://127.0.0.1:8000 (without /v1)."""

    base_url: str
    uds: str | None = None

    def __str__(self) -> str:
        return f"unix:{self.uds}" if self.uds else self.base_url

    @classmethod
    def of_api(cls, base_url: str) -> Address:
        """The address of a base URL as users write it, with or without /v1 at its end."""
        return cls(base_url.rstrip("/").removesuffix("/v1"))


@dataclass(frozen=True, slots=True)
class Reply:
    """What the judge said, and what it took. Token counts are 0 where the server doesn't say.

    `reasoning` is what it thought, where the server gives that apart; `refusal` why it would not answer.
    """

    content: str | None
    finish: str | None
    prompt_tokens: int
    output_tokens: int
    cached_tokens: int
    reasoning: str | None = None
    refusal: str | None = None


class TransportFailed(FlockError):
    """The request didn't get an answer, or got one that says 'not now' (408, 429, 5xx)."""

    def __init__(self, what: str, *, status: int | None = None, retry_after: float | None = None) -> None:
        super().__init__(what)
        self.status = status
        self.retry_after = retry_after


def pauses(limit: float) -> Callable[[RetryCallState], float]:
    """How long tenacity waits between tries, in seconds: longer each time up to `limit`, and as a server asks for."""
    backoff = wait_random_exponential(multiplier=0.25, max=limit)

    def seconds(state: RetryCallState) -> float:
        error = state.outcome.exception() if state.outcome else None
        asked = error.retry_after if isinstance(error, TransportFailed) else None
        return backoff(state) + min(asked or 0.0, 4 * limit)

    return seconds


class RequestRefused(FlockError):
    """The server says that this very request can't be served (400, 413, 422)."""


class KeyRefused(ServerError):
    """The server doesn't take the key (401, 403)."""


def _reason(body: bytes) -> str:
    try:
        error = orjson.loads(body)
        error = error.get("error", error) if isinstance(error, dict) else error
        text = error.get("message") if isinstance(error, dict) else error
        return str(text)[:500]
    except orjson.JSONDecodeError:
        return body[:300].decode("utf-8", "replace").strip() or "empty answer"


def _retry_after(headers: Mapping[str, str]) -> float | None:
    try:
        return float(headers["Retry-After"])
    except (KeyError, ValueError):
        return None


def _count(usage: Mapping[str, Any], key: str) -> int:
    value = usage.get(key)
    return value if isinstance(value, int) else 0


def _joined(content: object, *kinds: str) -> str | None:
    """The text of a content: a string, or a list of parts of which those of these kinds count; None: it has none.

    A part's text is a string, or (a thought's, with some servers) a list of parts again.
    """
    if isinstance(content, str):
        return content
    found = []
    for part in content if isinstance(content, list) else []:
        kind = part.get("type", "text") if isinstance(part, dict) else None
        text = _joined(part.get("text") or part.get(kind), "text") if kind in kinds else None
        found += [] if text is None else [text]
    return "".join(found) if found else None


def _reasoning(message: Mapping[str, Any]) -> str | None:
    """What a message says was thought: vLLM calls it `reasoning`, its older versions and others `reasoning_content`."""
    content = message.get("content")
    inside = _joined(content, "thinking", "reasoning") if isinstance(content, list) else None
    return _joined(message.get("reasoning"), "text") or _joined(message.get("reasoning_content"), "text") or inside


def parse_reply(body: bytes) -> Reply:
    """A chat completion's body as a Reply. Raises TransportFailed where it is none."""
    try:
        data = orjson.loads(body)
        choice = data["choices"][0]
        message = choice["message"]
        content = _joined(message.get("content"), "text", "output_text")
    except (orjson.JSONDecodeError, KeyError, IndexError, TypeError, AttributeError) as error:
        raise TransportFailed(f"the answer is not a chat completion: {body[:120]!r}") from error
    usage = data.get("usage") or {}
    details = usage.get("prompt_tokens_details") or {}
    refusal = message.get("refusal")
    return Reply(
        content=content, finish=choice.get("finish_reason"),
        prompt_tokens=_count(usage, "prompt_tokens"), output_tokens=_count(usage, "completion_tokens"),
        cached_tokens=_count(details, "cached_tokens"),
        reasoning=_reasoning(message), refusal=refusal if isinstance(refusal, str) else None,
    )


def check_status(status: int, headers: Mapping[str, str], body: bytes) -> None:
    """Raise the failure that an HTTP status stands for; return for 200."""
    if status == 200:
        return
    what = f"HTTP {status}: {_reason(body)}"
    if status in (408, 409, 425, 429) or status >= 500:
        raise TransportFailed(what, status=status, retry_after=_retry_after(headers))
    if status in (401, 403):
        raise KeyRefused(f"the judge's server refuses the key: {what}",
                         todo="check the variable that judge.api_key_env names; on a job's own server this means "
                         "that another program answers at its address")
    if status in (404, 405):
        raise ServerError(f"the judge's server doesn't know the model or the path: {what}",
                          todo="check judge.model and judge.base_url (it ends in /v1)")
    raise RequestRefused(what)


class ChatClient(Protocol):
    """What the engine asks of: one server, or a fleet in its place."""

    async def chat(self, messages: Messages, *, max_tokens: int, temperature: float,
                   extra: Mapping[str, object] | None = None, timeout: float | None = None,
                   affinity: str | None = None) -> Reply:
        """One chat completion. Requests of one `affinity` begin alike: a fleet sends them to one server."""

    async def count_tokens(self, messages: Messages) -> tuple[int, int | None]:
        """(tokens of the prompt with the chat template, context length)."""

    async def metrics(self, timeout: float = 10) -> str:
        """Prometheus metrics, as text."""


class JudgeClient:
    """A client of one server. Use as an async context manager.

    `tls`: for an https address, whom to trust; None: the system's authorities.
    """

    def __init__(self, address: Address, model: str, *, key: str | None = None, timeout: float = 1800.0,
                 proxies: bool = False, tls: ssl.SSLContext | None = None) -> None:
        self.address = address
        self.model = model
        self._key = key
        self._timeout = aiohttp.ClientTimeout(total=timeout, sock_connect=30)
        self._proxies = proxies
        self._tls = tls
        self._session: aiohttp.ClientSession | None = None
        self._chat_url = f"{address.base_url}/v1/chat/completions"

    async def __aenter__(self) -> Self:
        connector: aiohttp.BaseConnector
        if self.address.uds:
            connector = aiohttp.UnixConnector(self.address.uds, limit=0, keepalive_timeout=60)
        else:
            connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=60, ssl=self._tls or True)
        headers = {"Content-Type": "application/json"}
        if self._key:
            headers["Authorization"] = f"Bearer {self._key}"
        self._session = aiohttp.ClientSession(
            connector=connector, headers=headers, timeout=self._timeout, trust_env=self._proxies,
            auto_decompress=True, cookie_jar=aiohttp.DummyCookieJar(),
        )
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None,
                        trace: TracebackType | None) -> None:
        await self.close()

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def _call(self, method: str, url: str, body: bytes | None, timeout: float | None = None) -> bytes:
        if self._session is None:
            raise RuntimeError("the client is not open")
        limit = aiohttp.ClientTimeout(total=timeout) if timeout else self._timeout
        try:
            response = await self._session.request(method, url, data=body, timeout=limit)
            data = await response.read()  # gives the connection back, or closes it where this fails
        except TimeoutError as error:
            raise TransportFailed(f"no answer within {limit.total:g} s") from error
        except (aiohttp.ClientError, OSError) as error:
            raise TransportFailed(f"{type(error).__name__}: {error}") from error
        if response.status != 200:
            check_status(response.status, response.headers, data)
        return data

    async def chat(self, messages: Messages, *, max_tokens: int, temperature: float,
                   extra: Mapping[str, object] | None = None, timeout: float | None = None,
                   affinity: str | None = None) -> Reply:
        """One chat completion. Raises TransportFailed, RequestRefused or ServerError. `affinity` says nothing here."""
        request: dict[str, object] = {
            "model": self.model, "messages": messages, "temperature": temperature, "max_tokens": max_tokens,
        }
        if extra:
            request.update(extra)
        return parse_reply(await self._call("POST", self._chat_url, orjson.dumps(request), timeout))

    async def count_tokens(self, messages: Messages) -> tuple[int, int | None]:
        """(tokens of the prompt with the chat template, context length) by the server's /tokenize."""
        body = orjson.dumps({"model": self.model, "messages": messages})
        data = orjson.loads(await self._call("POST", f"{self.address.base_url}/tokenize", body, 120))
        length = data.get("max_model_len")
        return int(data["count"]), length if isinstance(length, int) else None

    async def post(self, path: str, request: Mapping[str, object], timeout: float | None = None) -> object:
        """Any other request of this server's, such as /tokenize: its answer as JSON. Raises as `chat`."""
        data = await self._call("POST", f"{self.address.base_url}{path}", orjson.dumps(request), timeout)
        try:
            return orjson.loads(data)
        except orjson.JSONDecodeError as error:
            raise TransportFailed(f"the answer is not JSON: {data[:120]!r}") from error

    async def models(self, timeout: float = 10) -> dict[str, int | None]:
        """Served model ids with their context length in tokens (None where the server doesn't say)."""
        data = orjson.loads(await self._call("GET", f"{self.address.base_url}/v1/models", None, timeout))
        found = {}
        for entry in data.get("data", []):
            length = entry.get("max_model_len")
            found[str(entry.get("id"))] = length if isinstance(length, int) else None
        return found

    async def worker(self, timeout: float = 10) -> object:
        """What a fleet's worker says of itself, as JSON. Raises ValueError where it isn't JSON."""
        return orjson.loads(await self._call("GET", f"{self.address.base_url}/flock-hpc/worker", None, timeout))

    async def healthy(self, timeout: float = 10) -> None:
        """Return when /health says 200; else raise TransportFailed or RequestRefused."""
        await self._call("GET", f"{self.address.base_url}/health", None, timeout)

    async def metrics(self, timeout: float = 10) -> str:
        """The server's Prometheus metrics, as text."""
        return (await self._call("GET", f"{self.address.base_url}/metrics", None, timeout)).decode("utf-8", "replace")
