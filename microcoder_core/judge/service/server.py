"""Runs the judge service, and ends it without losing an answer."""

from __future__ import annotations

import logging
import math
import socket
from collections.abc import Callable

import uvicorn

from microcoder_core.errors import InputError, StageStopped
from microcoder_core.interrupt import stop_exit_code
from microcoder_core.judge.judge import Judge
from microcoder_core.judge.service.app import make_app
from microcoder_core.judge.service.config import ServiceConfig

logger = logging.getLogger(__name__)

_LOOPBACK = ("127.", "::1", "localhost")


def serve(config: ServiceConfig, token: str | None, listening: Callable[[str, Judge], None]) -> None:
    """Serves until SIGTERM or SIGINT; then takes no more connections, and gives those that are there `drain_s` to get their answers.

    Args:
        token: The bearer token to ask for; null asks for none.
        listening: Called once, with the address and the judge, when requests are taken.

    Raises:
        InputError: A host or port that cannot be listened on.
        JudgeError: A sandbox below the minimum.
        StageStopped: Some programs had no answer when the time was over.
    """
    with _socket(config) as listener, Judge(config.judge) as judge:
        app = make_app(judge, config, token)
        if not token and not config.host.startswith(_LOOPBACK):
            logger.warning("no token is set: whoever reaches %s may have programs run", config.host)
        settings = uvicorn.Config(
            app,
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=math.ceil(config.drain_s),
        )
        listening(_address(listener), judge)
        try:
            uvicorn.Server(settings).run(sockets=[listener])
        except KeyboardInterrupt as stop:  # raised again by uvicorn, after its end
            cut_short = app.state.service.queue.cut_short
            if cut_short:
                message = f"stopped: {cut_short} programs were not answered in {config.drain_s:g} s; their callers ask again"
                raise StageStopped(message, stop_exit_code(stop)) from None
    logger.info("stopped: every program that was taken was answered")


def _socket(config: ServiceConfig) -> socket.socket:
    family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
    try:
        return socket.create_server((config.host, config.port), family=family, backlog=1024)
    except OSError as error:
        raise InputError(f"host, port: cannot listen on {config.host}:{config.port} ({error.strerror}); choose others") from None


def _address(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
