"""The demo, with a shop that closes early."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from warren.pipeline import demo
from warren.pipeline.errors import UsageError
from warren.pipeline.jobs.tables import read_archive
from warren.pipeline.report.progress import ProgressLine


def parse(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    demo.add_arguments(parser)
    parser.add_argument("--remote")
    return parser.parse_args(words)


def test_demo_leaves_an_archive_of_all_that_was_published_and_a_report_with_plots(
    spark: SparkSession, tmp_path: Path
) -> None:
    options = parse("--to", str(tmp_path / "shop"), "--seconds", "3")
    demo.check(options)

    result = demo.run(spark, options, ProgressLine(None))

    left = {path.name for path in (tmp_path / "shop").iterdir()}
    assert left == {"archive", "flow", "dead-letters", "report.html"}
    archived = read_archive(spark, str(tmp_path / "shop" / "archive"))
    assert archived.select("message_id").distinct().count() == result.numbers["messages published"]
    causes = spark.read.parquet(str(tmp_path / "shop" / "dead-letters")).collect()
    died = {(row.died_in, row.reason) for row in causes}
    assert {("shop.payments", "rejected"), ("shop.mail", "maxlen")} <= died
    assert max(row.most for row in causes if row.died_in == "shop.payments") > 3  # the circle is found
    page = (tmp_path / "shop" / "report.html").read_text()
    assert page.count("<svg") >= 4
    assert "warren pipeline dead-letters --url" in page


def test_demo_writes_into_no_directory_that_has_something_in_it(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("precious")
    with pytest.raises(UsageError, match=f"--to {tmp_path} is there already"):
        demo.check(parse("--to", str(tmp_path)))


def test_demo_runs_on_this_machine_only() -> None:
    with pytest.raises(UsageError, match="--master, not --remote"):
        demo.check(parse("--remote", "sc://host"))
