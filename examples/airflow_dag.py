"""Airflow 3: every hour what is new in the streams goes to the archive; then a pipeline runs, and an audit.

WarrenMQ has a virtual environment of its own, with `pip install 'warrenmq[spark]'`, which nobody has to
activate: its command finds its Python and a Java by itself. A run is exactly once over its checkpoint, so
that a retry, or a run that comes late, writes nothing twice. Two archives at once to one directory are
refused, hence `max_active_runs`. The password is an Airflow variable, and reaches the command by its
environment.
"""

from datetime import UTC, datetime, timedelta

from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG

WARREN = "/opt/warren/bin/warren"
BROKER = "--url http://broker:15672 --user archiver --vhost / --pattern 'orders\\..*'"
ARCHIVE = "/data/archive/orders"
SECRETS = {"WARREN_PASSWORD": "{{ var.value.warren_password }}"}

with DAG(
    "warren_orders",
    schedule="@hourly",
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
    default_args={"retries": 3, "retry_delay": timedelta(minutes=5)},
):
    archive = BashOperator(
        task_id="archive",
        bash_command=f"{WARREN} pipeline archive {BROKER} --once --to {ARCHIVE}",
        env=SECRETS,
        append_env=True,
    )
    paid_orders = BashOperator(
        task_id="paid_orders",
        bash_command=f"{WARREN} pipeline run /opt/pipelines/paid_orders.toml",
        cwd="/data",  # of the file's relative paths; without it, a directory that Airflow removes afterwards
        env=SECRETS,
        append_env=True,
    )
    audit = BashOperator(
        task_id="audit",
        bash_command=f"{WARREN} pipeline audit {BROKER} --archive {ARCHIVE}",
        env=SECRETS,
        append_env=True,
    )
    archive >> [paid_orders, audit]
