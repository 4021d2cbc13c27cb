"""Counts of the judge service, for Prometheus."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from microcoder_core.records import Judgement

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 60)


class Metrics:
    """The metrics of one service."""

    def __init__(self, layers: tuple[str, ...], workers: int, max_programs: int) -> None:
        self._registry = CollectorRegistry()
        self.programs = Counter("microcoder_judge_programs", "Programs judged, by verdict.", ["verdict"], registry=self._registry)
        self.tests = Counter("microcoder_judge_tests", "Tests that programs have passed.", registry=self._registry)
        self.seconds = Histogram(
            "microcoder_judge_program_seconds",
            "Seconds from the turn of a program to its judgement.",
            buckets=_SECONDS,
            registry=self._registry,
        )
        self.requests = Counter("microcoder_judge_requests", "Requests, by status.", ["status"], registry=self._registry)
        self.waiting = Gauge("microcoder_judge_waiting_programs", "Programs taken and not yet answered.", registry=self._registry)
        room = Gauge("microcoder_judge_max_programs", "Programs that may be taken and not yet answered.", registry=self._registry)
        room.set(max_programs)
        count = Gauge("microcoder_judge_workers", "Programs run at a time.", registry=self._registry)
        count.set(workers)
        held = Gauge("microcoder_judge_layer", "Layers of the sandbox that hold (1).", ["layer"], registry=self._registry)
        for layer in layers:
            held.labels(layer).set(1)

    def judged(self, judgement: Judgement, seconds: float) -> None:
        """Counts one program."""
        self.programs.labels(judgement.verdict.value).inc()
        self.tests.inc(judgement.tests_passed)
        self.seconds.observe(seconds)

    def text(self) -> bytes:
        """All of them, as Prometheus reads them."""
        return generate_latest(self._registry)
