"""Applications publish and consume while a cluster has random faults: nothing confirmed is lost, messages
come again only for a reason, in order, and all works again after healing.

`CLUSTER_FAULT_SECONDS=1800 CLUSTER_SEED=… pytest …/test_random_faults.py --log-cli-level=info` takes longer.
A failure leaves what applications saw, and the brokers' logs, in the test's directory.
"""

from __future__ import annotations

import logging
import os
import shutil
from contextlib import ExitStack
from pathlib import Path
from random import Random

import pytest

from tests.cluster.real.checker.trial import Trial
from tests.cluster.real.host_cluster import NAMES, HostCluster
from tests.cluster.real.hosts import small_disk, why_not

SECONDS = float(os.environ.get("CLUSTER_FAULT_SECONDS", "150"))
SETTINGS = {"disk_free_limit": "1000000"}
DISK_BYTES = 192 * 1024 * 1024
LIMITS = {"warren.storage.journal.FREE_SHARE_MAX": 1}  # so that there is a journal on small disks, too
OTHERWISE_SECONDS = 1_200  # to start, to drain, and to check

pytestmark = [pytest.mark.slow, pytest.mark.timeout(SECONDS + OTHERWISE_SECONDS)]


@pytest.mark.parametrize("part", [0, 1])
def test_random_faults_lose_nothing_that_was_confirmed(
    part: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """In two parts, so that two workers share them."""
    reason = why_not()
    if reason:
        pytest.skip(reason)
    caplog.set_level(logging.ERROR, "pika")
    seed = int(os.environ.get("CLUSTER_SEED", Random().randrange(1_000_000))) + part
    told = f"CLUSTER_SEED={seed}, in {tmp_path}"
    logging.getLogger(__name__).info("%s", told)
    with ExitStack() as disks:
        for name in NAMES:
            disks.enter_context(small_disk(tmp_path / name, DISK_BYTES))
            (tmp_path / name).chmod(0o700)
        try:
            run_trial(seed, tmp_path, told)
        except BaseException:
            for name in NAMES:
                shutil.copytree(tmp_path / name, tmp_path / f"{name}.kept")
            raise


def run_trial(seed: int, path: Path, told: str) -> None:
    cluster = HostCluster(path, **SETTINGS)
    cluster.limits |= LIMITS
    with cluster, cluster.entered():
        wrong = Trial(cluster, seed, path).run(SECONDS)
    assert not wrong, "\n".join([told, *wrong])
    cluster.check_logs()
