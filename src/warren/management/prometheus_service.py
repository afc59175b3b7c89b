"""The service `prometheus` of a broker: metrics on a port of their own, without a login."""

from __future__ import annotations

from aiohttp import web

from warren.management.app import HttpService
from warren.management.context import Context
from warren.management.errors import answer_errors
from warren.management.prometheus import Prometheus
from warren.management.rights import Right
from warren.management.slow_requests import measure
from warren.server.app import Broker
from warren.server.listeners import PROMETHEUS


def make_app(context: Context) -> web.Application:
    measuring = measure(context.broker.world.watchdog)
    app = web.Application(middlewares=[measuring, answer_errors(context.node.world.report)])
    endpoints = Prometheus(context).endpoints(of_objects=Right.PUBLIC)
    app.add_routes([endpoint.route() for endpoint in endpoints])
    return app


def prometheus_service(broker: Broker) -> HttpService:
    """Listens on the broker's address, on `prometheus_port`."""
    return HttpService(broker, make_app, (PROMETHEUS,))
