"""The files under packaging/: each is checked by the tool that reads it, where that is installed."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from warren.server.config import load

PACKAGING = Path(__file__).parents[2] / "packaging"
MINUTES_MAX = 5


def run(*words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, capture_output=True, text=True, timeout=60 * MINUTES_MAX, check=False)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="Debian's systemd is not installed")
def test_systemd_reads_the_unit(tmp_path: Path) -> None:
    unit = tmp_path / "warren.service"
    text = (PACKAGING / "warren.service").read_text()
    unit.write_text(text.replace("/opt/warren/bin/warren", "/bin/true"))  # which has to exist for the check
    found = run("systemd-analyze", "verify", "--man=no", unit)
    complaints = [line for line in found.stderr.splitlines() if "warren.service" in line]
    assert complaints == []


def test_probes_and_ports_of_the_manifests_are_those_of_the_broker() -> None:
    documents = list(yaml.safe_load_all((PACKAGING / "kubernetes.yaml").read_text()))
    assert [document["kind"] for document in documents] == ["ConfigMap", "Service", "StatefulSet"]
    (container,) = documents[2]["spec"]["template"]["spec"]["containers"]
    probes = {name: probe["httpGet"]["path"] for name, probe in container.items() if name.endswith("Probe")}
    assert probes == {
        "startupProbe": "/health/live",
        "livenessProbe": "/health/live",
        "readinessProbe": "/health/ready",
    }
    assert {port["containerPort"] for port in container["ports"]} == {5672, 15672}


def test_compose_file_builds_the_image_beside_it() -> None:
    service = yaml.safe_load((PACKAGING / "compose.yaml").read_text())["services"]["warren"]
    build = PACKAGING / service["build"]["context"]
    assert (build / service["build"]["dockerfile"]).samefile(PACKAGING / "Dockerfile")


def test_guest_can_log_in_to_the_container_of_the_compose_file_and_from_this_machine_only() -> None:
    """Clients come to a container through a network, never from its loopback."""
    service = yaml.safe_load((PACKAGING / "compose.yaml").read_text())["services"]["warren"]
    assert "guest" not in load({}, environment=service["environment"]).loopback_users
    assert all(port.startswith("127.0.0.1:") for port in service["ports"])


def test_data_directory_on_kubernetes_is_below_the_volume(tmp_path: Path) -> None:
    """The volume itself belongs to root, so that the broker could not make it private."""
    documents = list(yaml.safe_load_all((PACKAGING / "kubernetes.yaml").read_text()))
    settings = tmp_path / "warren.toml"
    settings.write_text(documents[0]["data"]["warren.toml"])
    (container,) = documents[2]["spec"]["template"]["spec"]["containers"]
    volume = next(mount["mountPath"] for mount in container["volumeMounts"] if mount["name"] == "data")
    assert Path(volume) in load({"config": str(settings)}, environment={}).data_dir.parents


def test_image_is_built_without_what_was_compiled_here() -> None:
    left_out = (PACKAGING / "Dockerfile.dockerignore").read_text().splitlines()
    assert {".git", ".venv", "**/*.so", "**/*.c"} <= set(left_out)
    assert not {"src", "setup.py", "pyproject.toml", "README.md", "LICENSE"} & set(left_out)


def test_image_has_the_extras_that_settings_ask_for() -> None:
    text = (PACKAGING / "Dockerfile").read_text()
    assert "'/source[oauth,otel]'" in text
    assert "'warrenmq[oauth,otel]'" in text
