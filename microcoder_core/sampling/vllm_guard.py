"""What `microcoder serve-model` puts before a vLLM server: with a token set, every path asks for it but `/health`.

vLLM's own check leaves out the paths that change weights.
"""

from __future__ import annotations

import hmac
import os
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from microcoder_core.sampling.config import TOKEN_VARIABLE

GUARD = "microcoder_core.sampling.vllm_guard.TokenGuard"

_Message = MutableMapping[str, Any]
_Receive = Callable[[], Awaitable[_Message]]
_Send = Callable[[_Message], Awaitable[None]]
_App = Callable[[_Message, _Receive, _Send], Awaitable[None]]


class TokenGuard:
    """ASGI middleware that answers 401 to a request without the token of VLLM_API_KEY; without that variable it lets all pass."""

    def __init__(self, app: _App) -> None:
        self._app = app
        token = os.environ.get(TOKEN_VARIABLE)
        self._expected = f"Bearer {token}".encode() if token else None

    async def __call__(self, scope: _Message, receive: _Receive, send: _Send) -> None:
        if self._expected is None or scope["type"] == "lifespan" or scope.get("path") == "/health" or self._is_allowed(scope):
            await self._app(scope, receive, send)
            return
        await send({"type": "http.response.start", "status": 401, "headers": [(b"content-type", b"text/plain")]})
        await send({"type": "http.response.body", "body": f"a bearer token is needed ({TOKEN_VARIABLE})".encode()})

    def _is_allowed(self, scope: _Message) -> bool:
        assert self._expected is not None
        return any(name == b"authorization" and hmac.compare_digest(value, self._expected) for name, value in scope["headers"])
