"""The addresses of the judge service."""

from __future__ import annotations

import asyncio
import hmac
import itertools
import json
from collections.abc import AsyncIterator
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse
from fastapi_offline import FastAPIOffline
from pydantic.json_schema import models_json_schema
from starlette.concurrency import run_in_threadpool
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from microcoder_core import __version__
from microcoder_core.errors import InputError
from microcoder_core.judge.config import SETTINGS_HEADER
from microcoder_core.judge.judge import Judge
from microcoder_core.judge.service import metrics as counts
from microcoder_core.judge.service.config import ServiceConfig
from microcoder_core.judge.service.queue import Full, Queue, Work
from microcoder_core.judge.service.requests import Answer, Batch, KnownProblems, Single, batch_items, single_item
from microcoder_core.records import Judgement, Problem, Record, TestCase, Verdict

JSON_LINES = "application/x-ndjson"
_OPEN = ("/healthz", "/readyz", "/metrics", "/openapi.json", "/docs", "/redoc", "/static-offline-docs")
"""Answered without a token: they tell nothing of problems and programs."""
_SCHEMAS = "#/components/schemas/{model}"
_MIB = 1024 * 1024
_CANARY = Problem(problem_id="canary", statement="Echo.", form="stdin", tests=(TestCase(input="7\n", expected="7\n"),))
_GONE = 499
"""Status for the counts: the caller did not wait for the answer."""


class TooLarge(Exception):
    """A request above the size that is allowed."""


class OtherSettings(Exception):
    """A caller that expects verdicts by other settings."""


def make_app(judge: Judge, config: ServiceConfig, token: str | None) -> FastAPI:
    """The service around an entered judge.

    Args:
        token: What callers must send as `Authorization: Bearer TOKEN`; null lets everyone in.
    """
    app = FastAPIOffline(
        title="microcoder judge",
        version=__version__,
        description="Runs programs on the tests of their problems in a sandbox and says what is right.",
    )
    service = app.state.service = Service(judge, config)
    app.add_middleware(_Guard, metrics=service.metrics, token=token)
    app.add_exception_handler(InputError, lambda _, error: _refusal(422, str(error)))
    app.add_exception_handler(TooLarge, lambda _, error: _refusal(413, str(error)))
    app.add_exception_handler(OtherSettings, lambda _, error: _refusal(409, str(error)))
    app.add_exception_handler(Full, _refuse_for_now)
    app.get("/healthz", summary="Whether the process answers")(service.health)
    app.get("/readyz", summary="Whether programs can be run (503: they cannot)")(service.ready)
    app.get("/metrics", summary="Counts, for Prometheus")(service.counts)
    app.get("/v1/info", summary="Version, settings and layers of the sandbox")(service.info)
    app.post("/v1/judge", summary="Judge one program", **_documented(Single, Judgement, "application/json"))(service.judge_one)
    app.post("/v1/batch", summary="Judge many programs; one answer a line, as they come", **_documented(Batch, Answer, JSON_LINES))(
        service.judge_batch
    )
    _document_models(app)
    return app


class _Guard:
    """Asks for the token, and counts answers by status."""

    def __init__(self, app: ASGIApp, metrics: counts.Metrics, token: str | None) -> None:
        self._app = app
        self._metrics = metrics
        self._expected = f"Bearer {token}".encode() if token else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def counted(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._metrics.requests.labels(str(message["status"])).inc()
            await send(message)

        if self._may_enter(scope):
            await self._app(scope, receive, counted)
        else:
            refusal = _refusal(401, "authorization: must be the service's bearer token", {"WWW-Authenticate": "Bearer"})
            await refusal(scope, receive, counted)

    def _may_enter(self, scope: Scope) -> bool:
        if self._expected is None or scope["path"].startswith(_OPEN):
            return True
        return hmac.compare_digest(dict(scope["headers"]).get(b"authorization", b""), self._expected)


def _refuse_for_now(_: Request, error: Exception) -> Response:
    assert isinstance(error, Full)
    return _refusal(429, str(error), {"Retry-After": str(error.retry_after_s)})


def _refusal(status: int, message: str, headers: dict[str, str] | None = None) -> Response:
    return JSONResponse({"error": message}, status_code=status, headers=headers)


class Service:
    """What the addresses do."""

    def __init__(self, judge: Judge, config: ServiceConfig) -> None:
        self._judge = judge
        self._config = config
        self._known = KnownProblems()
        self.metrics = counts.Metrics(judge.layers, judge.config.num_workers, config.max_programs)
        self.queue = Queue(judge, config.max_programs, self.metrics)
        self._canaries = itertools.count()

    async def health(self) -> dict[str, str]:
        return {"status": "ok"}

    async def ready(self) -> Response:
        """Runs a program of its own, never the same twice; that it has to wait for its turn is no failure."""
        verdict = self._judge.submit(_CANARY, f"print(input())  # {next(self._canaries)}")
        try:
            judgement = await asyncio.wait_for(asyncio.shield(asyncio.wrap_future(verdict)), self._config.heartbeat_s)
        except TimeoutError:
            return JSONResponse({"status": "busy", "waiting_programs": self.queue.waiting})
        if judgement.verdict is not Verdict.ACCEPTED:
            return _refusal(503, f"a program of ours is judged {judgement.verdict.value}: {judgement.detail}")
        return JSONResponse({"status": "ready", "waiting_programs": self.queue.waiting})

    async def counts(self) -> Response:
        return Response(self.metrics.text(), media_type=counts.CONTENT_TYPE)

    async def info(self) -> dict[str, Any]:
        return {
            "version": __version__,
            "layers": self._judge.layers,
            "workers": self._judge.config.num_workers,
            "settings": self._judge.config.verdict_settings(),
            "max_programs": self._config.max_programs,
            "max_request_bytes": self._config.max_request_mib * _MIB,
        }

    async def judge_one(self, request: Request) -> Response:
        item = await run_in_threadpool(single_item, await self._body(request), self._known)
        with self.queue.take([item]) as work:
            while (answer := await work.next(self._config.heartbeat_s)) is None:
                if await request.is_disconnected():
                    return Response(status_code=_GONE)
        return JSONResponse(answer[1].model_dump(mode="json"))

    async def judge_batch(self, request: Request) -> Response:
        items = await run_in_threadpool(batch_items, await self._body(request), self._known)
        if len(items) > self._config.max_programs:
            raise TooLarge(f"programs: must be at most {self._config.max_programs} in a request, got {len(items)}; send several requests")
        return _Answers(self.queue.take(items), self._config.heartbeat_s)

    async def _body(self, request: Request) -> bytes:
        expected = request.headers.get(SETTINGS_HEADER)
        if expected is not None and expected != self._judge.config.verdict_fingerprint():
            raise OtherSettings(f"{SETTINGS_HEADER}: the service judges with other settings than the caller asks for; see /v1/info")
        most = self._config.max_request_mib * _MIB
        announced = request.headers.get("content-length", "")
        parts, size = [], int(announced) if announced.isdigit() else 0
        if size <= most:
            size = 0
            async for part in request.stream():
                size += len(part)
                if size > most:
                    break
                parts.append(part)
        if size > most:
            raise TooLarge(f"request: must be at most {self._config.max_request_mib} MiB; send several requests")
        return b"".join(parts)


class _Answers(StreamingResponse):
    """One answer a line, as they come, with empty lines while none does; ends its work when the caller has gone."""

    def __init__(self, work: Work, heartbeat_s: float) -> None:
        super().__init__(self._lines(), media_type=JSON_LINES)
        self._work = work
        self._heartbeat_s = heartbeat_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._work:
            await super().__call__(scope, receive, send)

    async def _lines(self) -> AsyncIterator[bytes]:
        left = len(self._work)
        while left:
            answer = await self._work.next(self._heartbeat_s)
            if answer is None:
                yield b"\n"
                continue
            left -= 1
            yield json.dumps({"index": answer[0], "judgement": answer[1].model_dump(mode="json")}).encode() + b"\n"


def _documented(sent: type[Record], received: type[Record], media_type: str) -> dict[str, Any]:
    """What the OpenAPI page says of an address whose bodies are read and written by hand."""
    refusals = {
        401: "no or another token",
        409: f"other settings than {SETTINGS_HEADER} says",
        413: "too large",
        422: "a rule is broken",
        429: "no room now: see Retry-After",
    }
    return {
        "response_model": None,
        "responses": {
            200: {"content": {media_type: {"schema": {"$ref": _SCHEMAS.format(model=received.__name__)}}}},
            **{status: {"description": meaning} for status, meaning in refusals.items()},
        },
        "openapi_extra": {
            "requestBody": {
                "required": True,
                "content": {"application/json": {"schema": {"$ref": _SCHEMAS.format(model=sent.__name__)}}},
            }
        },
    }


def _document_models(app: FastAPI) -> None:
    """Puts the records that bodies consist of into the OpenAPI page."""
    made = app.openapi
    pairs = [(kind, "validation") for kind in (Single, Batch, Answer, Judgement)]

    def openapi() -> dict[str, Any]:
        schema = made()
        _, models = models_json_schema(pairs, ref_template=_SCHEMAS)  # type: ignore[arg-type]
        schema.setdefault("components", {}).setdefault("schemas", {}).update(models["$defs"])
        return schema

    app.openapi = openapi  # type: ignore[method-assign]
