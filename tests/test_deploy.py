"""The compose file and what it mounts. No Docker engine is needed: the file is parsed."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from loadramp.metrics.dialects import DIALECTS

ROOT = Path(__file__).parent.parent
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES: dict[str, Any] = COMPOSE["services"]


def test_each_profile_holds_the_services_it_promises() -> None:
    members = {
        profile: {name for name, service in SERVICES.items() if profile in service["profiles"]}
        for profile in ("sim", "gpu", "ramp")
    }
    assert members["sim"] == {"sim", "ramp", "prometheus", "grafana"}
    assert members["gpu"] == {"vllm", "prometheus", "grafana"}
    assert members["ramp"] == {"vllm", "ramp-gpu"}  # what a service waits for has to be in its profile


def test_ports_are_on_loopback_only() -> None:
    ports = [port for service in SERVICES.values() for port in service.get("ports", [])]
    assert len(ports) == 4
    assert all(port.startswith("127.0.0.1:") for port in ports)


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_images_are_pinned(name: str) -> None:
    image, _, tag = SERVICES[name]["image"].partition(":")
    assert tag and tag != "latest", image


def test_the_gpu_is_reserved_and_the_model_cached() -> None:
    vllm = SERVICES["vllm"]
    device = vllm["deploy"]["resources"]["reservations"]["devices"][0]
    assert device["driver"] == "nvidia"
    assert device["capabilities"] == ["gpu"]
    assert f"model-cache:{vllm['environment']['HF_HOME']}" in vllm["volumes"]
    assert "/health" in " ".join(vllm["healthcheck"]["test"])
    assert "model-cache" in COMPOSE["volumes"]


def test_a_ramp_waits_for_a_healthy_server() -> None:
    for ramp, server in (("ramp", "sim"), ("ramp-gpu", "vllm")):
        assert SERVICES[ramp]["depends_on"][server]["condition"] == "service_healthy"
        assert "healthcheck" in SERVICES[server]


def test_everything_that_is_mounted_or_run_is_there() -> None:
    for service in SERVICES.values():
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            assert not source.startswith("./") or (ROOT / source).is_dir(), source
        for argument in service.get("command", []):
            if argument.startswith("scenarios/"):
                assert (ROOT / argument).is_file(), argument


def test_prometheus_scrapes_both_servers() -> None:
    config = yaml.safe_load((ROOT / "deploy/prometheus/prometheus.yml").read_text())
    targets = {t for job in config["scrape_configs"] for s in job["static_configs"] for t in s["targets"]}
    assert targets == {"sim:8000", "vllm:8000"}


def test_the_board_asks_only_for_names_the_engine_has() -> None:
    board = json.loads((ROOT / "deploy/grafana/dashboards/server.json").read_text())
    known = str(DIALECTS["vllm"])
    for panel in board["panels"]:
        for target in panel["targets"]:
            name = target["expr"].split("vllm:")[1].split("[")[0].split(")")[0].split("{")[0]
            family = name.removesuffix("_bucket").removesuffix("_total")
            assert f"vllm:{family}" in known, name
