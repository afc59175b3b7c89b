"""The table in which a report describes its own run."""

from __future__ import annotations

from argparse import Namespace
from datetime import UTC, datetime

from warren.pipeline.report.run import run_table, without_secrets


def test_run_tells_source_options_and_duration_and_no_secret() -> None:
    began = datetime(2026, 3, 1, 10, tzinfo=UTC)
    options = Namespace(
        job="replay",
        url="http://h:15672",
        user="me",
        password="hidden-1",
        amqp="amqp://me:hidden-2@h/%2F",
        queue=["a", "b"],
        pattern=None,
        once=True,
        follow=False,
        from_offset=0,
        compared_archive="to/archive",
        conf=[("spark.some.password", "hidden-3"), ("spark.x", "1")],
        html="page.html",
    )
    rows = [tuple(row) for row in run_table(options, began, 12.34).rows]
    assert rows == [
        ("began", began),
        ("took", "12.3 s"),
        ("--url", "http://h:15672"),
        ("--user", "me"),
        ("--amqp", "amqp://…@h/%2F"),
        ("--queue", "a, b"),
        ("--once", "yes"),
        ("--from-offset", "0"),
        ("--archive", "to/archive"),
        ("--conf", "spark.some.password=…, spark.x=1"),
    ]


def test_url_without_a_user_stays_as_it_is() -> None:
    assert without_secrets("http://host:15672/a@b") == "http://host:15672/a@b"
