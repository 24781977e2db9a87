"""``/livez``, ``/readyz`` and ``/metrics`` over plain HTTP, for the kubelet and Prometheus."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

import prometheus_client
from aiohttp import web
from prometheus_client.core import CollectorRegistry

from controller.runtime.reconciling import Outcome
from handler.devices.acceleration import Verdict

Checks = Mapping[str, Callable[[], bool]]
"""What readiness consists of, by name."""

_SECONDS: Final = (0.005, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30)


class Metrics:
    """The figures of this process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        prometheus_client.ProcessCollector(registry=self.registry)
        self.accelerated = prometheus_client.Gauge(
            "kubevirt_node_acceleration", "1 if guests on this node are accelerated (KVM), by reason.", ["reason"], registry=self.registry
        )
        self.links = prometheus_client.Gauge("kubevirt_launcher_links", "Launchers that are looked after.", registry=self.registry)
        self.streams = prometheus_client.Gauge("kubevirt_streams", "Open consoles and displays.", registry=self.registry)
        self.certificate = prometheus_client.Gauge(
            "kubevirt_certificate_expiration_timestamp_seconds",
            "When this node's certificate ends; 0: there is none.",
            registry=self.registry,
        )
        self.faults = prometheus_client.Gauge(
            "kubevirt_informer_faults", "Objects that could not be taken in or told of: see the log.", registry=self.registry
        )
        self._reconciles = prometheus_client.Histogram(
            "kubevirt_reconcile_seconds", "Passes of the reconcile loops.", ["loop", "outcome"], buckets=_SECONDS, registry=self.registry
        )

    def verdict(self, verdict: Verdict) -> None:
        """Tell whether guests are accelerated."""
        self.accelerated.labels(verdict.reason).set(1 if verdict.accelerated else 0)

    def reconciled(self, name: str, outcome: Outcome, seconds: float) -> None:
        """Count a pass of a loop."""
        self._reconciles.labels(name, outcome).observe(seconds)


async def run(port: int, checks: Checks, metrics: Metrics) -> None:
    """Serve until cancelled."""

    async def livez(_: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def readyz(_: web.Request) -> web.Response:
        missing = [name for name, is_ready in checks.items() if not is_ready()]
        return web.Response(status=503, text=f"not ready: {', '.join(missing)}\n") if missing else web.Response(text="ok\n")

    async def figures(_: web.Request) -> web.Response:
        return web.Response(body=prometheus_client.generate_latest(metrics.registry), content_type="text/plain", charset="utf-8")

    app = web.Application()
    app.router.add_get("/livez", livez)
    app.router.add_get("/readyz", readyz)
    app.router.add_get("/metrics", figures)
    runner = web.AppRunner(app, access_log=None, handle_signals=False)
    await runner.setup()
    try:
        await web.TCPSite(runner, None, port).start()
        await asyncio.get_running_loop().create_future()
    finally:
        await runner.cleanup()
