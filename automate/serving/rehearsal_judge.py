"""The rehearsal judge's handlers: as much of vLLM's interface as a campaign uses, and what they have counted.

Never judges anything: every reply says that it means nothing."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any

import orjson
from aiohttp import web

from automate.serving.rehearsal_behaviour import Behaviour, Fault
from automate.serving.rehearsal_replies import (
    ChatRequest,
    Reply,
    RequestRefusedError,
    check_room,
    choose_fault,
    count_chat,
    digest,
    pretend,
    prompt_key,
    read_chat,
    read_object,
    texts_of,
)
from automate.serving.rehearsal_room import TokenPool
from automate.serving.rehearsal_scoring import chat_tokens, choices_of, read_completion, tokens_of
from automate.serving.rehearsal_streaming import Stream
from automate.serving.rehearsal_thoughts import PrefixCache, message_of, reply_of

NOTICE = "its verdicts mean nothing"
FINGERPRINT = "flock-hpc-rehearsal"
OWNER = "flock-hpc rehearsal: verdicts mean nothing"
BLOCK_SIZE = 16
UNLIMITED_KV_TOKENS = 1 << 30
_LAST_WORDS_S = 0.05
_KINDS = {
    400: "BadRequestError",
    401: "AuthenticationError",
    404: "NotFoundError",
    429: "RateLimitError",
    500: "InternalServerError",
    503: "ServiceUnavailableError",
}


def json_reply(payload: object, status: int = 200) -> web.Response:
    """A reply with this JSON document."""
    return web.Response(body=orjson.dumps(payload), status=status, headers={"Content-Type": "application/json"})


def error_reply(message: str, status: int, param: str | None = None) -> web.Response:
    """An error in OpenAI's form."""
    error = {"message": message, "type": _KINDS[status], "param": param, "code": status}
    response = json_reply({"error": error}, status)
    if status == HTTPStatus.TOO_MANY_REQUESTS:
        response.headers["Retry-After"] = "0"
    return response


class RehearsalJudge:
    """The handlers of one stand-in judge, and what they have counted."""

    def __init__(self, model: str, behaviour: Behaviour, also: Sequence[str] = ()) -> None:
        self.model, self.behaviour, self.also = model, behaviour, tuple(also)
        self.answered = self.running = self.prompt_tokens = self.generation_tokens = self._serial = 0
        self._pool = TokenPool(behaviour.kv_tokens or UNLIMITED_KV_TOKENS)
        self._prefixes = PrefixCache(self._pool.size, behaviour.bytes_per_token)
        self._tried: set[bytes] = set()
        self._ready_at = float("inf")
        self._busy_until = 0.0
        self._ending = asyncio.Event()

    async def start(self, _: web.Application) -> None:
        """Begin to load."""
        loop = asyncio.get_running_loop()
        if self.behaviour.die_while_loading:
            loop.call_later(self.behaviour.load_seconds, os._exit, 1)
        else:
            self._ready_at = loop.time() + self.behaviour.load_seconds

    async def end(self, _: web.Application) -> None:
        """Let go of the requests that hang."""
        self._ending.set()

    def _loading(self) -> bool:
        return asyncio.get_running_loop().time() < self._ready_at

    def _dying(self) -> bool:
        return self.behaviour.die_after is not None and self.answered >= self.behaviour.die_after

    async def health(self, _: web.Request) -> web.Response:
        """200 once loaded, unless its failure is rehearsed."""
        limit = self.behaviour.health_fails_after
        failed = limit is not None and self.answered >= limit
        return web.Response(status=503 if failed or self._loading() else 200)

    async def models(self, _: web.Request) -> web.Response:
        """The models there are: one, and those that are served beside it as adapters are."""
        if self._loading():
            return error_reply("still loading", 503)
        served = [{"id": name, "object": "model", "created": int(time.time()), "owned_by": OWNER,
                   "max_model_len": self.behaviour.context} for name in (self.model, *self.also)]
        return json_reply({"object": "list", "data": served})

    async def tokenize(self, request: web.Request) -> web.Response:
        """The tokens of messages, or of a bare prompt."""
        if self._loading():
            return error_reply("still loading", 503)
        per_token = self.behaviour.bytes_per_token
        try:
            payload = read_object(await request.read())
            prompt = payload.get("prompt")
            if isinstance(prompt, str):
                tokens = tokens_of(prompt, per_token)
            else:
                tokens = chat_tokens(texts_of(payload.get("messages")), per_token)
        except RequestRefusedError as refused:
            return error_reply(refused.message, refused.status, refused.param)
        return json_reply({"count": len(tokens), "max_model_len": self.behaviour.context, "tokens": tokens})

    async def metrics(self, _: web.Request) -> web.Response:
        """Counters and gauges under vLLM's names, in Prometheus' text format."""
        rows = (
            ("num_requests_running", "gauge", self.running),
            ("num_requests_waiting", "gauge", self._pool.waiting),
            ("num_preemptions_total", "counter", 0),
            ("prompt_tokens_total", "counter", self.prompt_tokens),
            ("generation_tokens_total", "counter", self.generation_tokens),
            ("kv_cache_usage_perc", "gauge", self._pool.used),
            ("prefix_cache_queries_total", "counter", self.prompt_tokens),
            ("prefix_cache_hits_total", "counter", self._prefixes.hits),
        )
        name = self.model.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
        lines = [f"# rehearsal: {NOTICE}"]
        for metric, kind, value in rows:
            lines.append(f"# TYPE vllm:{metric} {kind}")
            lines.append(f'vllm:{metric}{{engine="0",model_name="{name}"}} {float(value)}')
        blocks = self._pool.size // BLOCK_SIZE
        lines.append("# TYPE vllm:cache_config_info gauge")
        lines.append(f'vllm:cache_config_info{{block_size="{BLOCK_SIZE}",num_gpu_blocks="{blocks}"}} 1.0')
        return web.Response(text="\n".join(lines) + "\n")

    async def chat(self, request: web.Request) -> web.StreamResponse:
        """One verdict, or one fault."""
        body = await request.read()
        if self._loading():
            return error_reply("still loading", 503)
        try:
            asked = read_chat(body, self.model, self.also)
            prompt_tokens = count_chat(asked.texts, self.behaviour.bytes_per_token)
            check_room(prompt_tokens, asked.max_tokens, self.behaviour.context)
            if asked.switched and self.behaviour.refuse_switch:
                raise RequestRefusedError("this judge's template takes no arguments", "chat_template_kwargs")
        except RequestRefusedError as refused:
            return error_reply(refused.message, refused.status, refused.param)
        fault = self._fault(asked, body)
        if fault is not None and fault is not Fault.EMPTY:
            return await self._misbehave(request, fault)
        reply = self._reply(asked, prompt_tokens, fault)
        cached = min(self._prefixes.look(asked.texts), prompt_tokens)
        completion = self._completion(message_of(self.behaviour, asked, reply), reply, prompt_tokens, cached)
        stream = Stream(request, completion, usage=asked.usage) if asked.stream else None
        await self._generate(prompt_tokens, reply.tokens, stream)
        if self._dying():
            await self._ending.wait()
        if not asked.is_probe:
            self._count_answer()
        return json_reply(completion) if stream is None else await stream.end()

    async def complete(self, request: web.Request) -> web.Response:
        """Completions of bare prompts, for the log-probabilities of their tokens; or one fault."""
        body = await request.read()
        if self._loading():
            return error_reply("still loading", 503)
        try:
            asked = read_completion(body, self.model, self.also, self.behaviour.bytes_per_token)
            for prompt in asked.prompts:
                check_room(len(prompt), asked.max_tokens, self.behaviour.context)
        except RequestRefusedError as refused:
            return error_reply(refused.message, refused.status, refused.param)
        fault = self._fault(ChatRequest((body.decode("utf-8", "replace"),), None, ()), body)
        if fault is not None and fault is not Fault.EMPTY:
            return await self._misbehave(request, fault)
        prompt_tokens, tokens = sum(map(len, asked.prompts)), asked.max_tokens * len(asked.prompts)
        await self._generate(prompt_tokens, tokens, None)
        if self._dying():
            await self._ending.wait()
        self._count_answer()
        usage = {"prompt_tokens": prompt_tokens, "completion_tokens": tokens, "total_tokens": prompt_tokens + tokens}
        return json_reply({"id": f"cmpl-rehearsal-{self.answered}", "object": "text_completion", "model": asked.model,
                           "created": int(time.time()), "choices": choices_of(asked), "usage": usage})

    def _fault(self, asked: ChatRequest, body: bytes) -> Fault | None:
        if asked.is_probe or not self.behaviour.has_faults:
            return None
        key = digest(body)
        fault = choose_fault(self.behaviour, prompt_key(asked.texts), key)
        if fault is None or fault is Fault.STATUS_400 or self.behaviour.sticky:
            return fault
        first = key not in self._tried
        self._tried.add(key)
        return fault if first else None

    async def _misbehave(self, request: web.Request, fault: Fault) -> web.Response:
        if fault is Fault.HANG:
            self.running += 1
            try:
                await self._ending.wait()
            finally:
                self.running -= 1
        elif fault is Fault.DROP and request.transport is not None:
            request.transport.close()
        status = {Fault.STATUS_400: 400, Fault.STATUS_429: 429, Fault.STATUS_500: 500}.get(fault, 503)
        return error_reply(f"this {status} is rehearsed", status)

    def _reply(self, asked: ChatRequest, prompt_tokens: int, fault: Fault | None) -> Reply:
        if fault is Fault.EMPTY:
            return Reply(None, asked.max_tokens or self.behaviour.context - prompt_tokens, "length")
        return pretend(self.behaviour, asked, reply_of(self.behaviour, asked))

    async def _generate(self, prompt_tokens: int, reply_tokens: int, stream: Stream | None) -> None:
        held = await self._pool.take(prompt_tokens + reply_tokens)
        self.running += 1
        self.prompt_tokens += prompt_tokens
        try:
            seconds = self._seconds(prompt_tokens, reply_tokens)
            if stream is not None:
                await stream.play(seconds)
            elif seconds:
                await asyncio.sleep(seconds)
        finally:
            self.running -= 1
            self._pool.give(held)
        self.generation_tokens += reply_tokens

    def _seconds(self, prompt_tokens: int, reply_tokens: int) -> float:
        """How long a completion takes: alone as long as its tokens, among others as long as the server's rates say."""
        behaviour, now = self.behaviour, asyncio.get_running_loop().time()
        work = prompt_tokens / behaviour.prompt_rate if behaviour.prompt_rate else 0.0
        work += reply_tokens / behaviour.output_rate if behaviour.output_rate else 0.0
        self._busy_until = max(now, self._busy_until) + work
        return max(behaviour.latency + behaviour.latency_per_token * reply_tokens, self._busy_until - now)

    def _count_answer(self) -> None:
        self.answered += 1
        if self._dying():
            # The answers given so far leave before the process does; no further one is given.
            asyncio.get_running_loop().call_later(_LAST_WORDS_S, os._exit, 1)

    def _completion(self, message: dict[str, Any], reply: Reply, prompt_tokens: int, cached: int) -> dict[str, Any]:
        self._serial += 1
        usage = {"prompt_tokens": prompt_tokens, "completion_tokens": reply.tokens,
                 "total_tokens": prompt_tokens + reply.tokens, "prompt_tokens_details": {"cached_tokens": cached}}
        return {
            "id": f"chatcmpl-rehearsal-{self._serial}", "object": "chat.completion", "created": int(time.time()),
            "model": self.model, "system_fingerprint": FINGERPRINT,
            "choices": [{"index": 0, "message": message, "finish_reason": reply.finish_reason}], "usage": usage,
        }
