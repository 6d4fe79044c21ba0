"""The dashboard and the alerts speak of metrics that the daemon has."""

from __future__ import annotations

import importlib
import itertools
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from mlxceld.api.metrics import Metrics
from mlxceld.engine.messages import SlotState, Snapshot, Totals
from mlxceld.plan import Plan

ETC = Path(__file__).parents[1] / "etc"
DASHBOARD = ETC / "grafana" / "mlxcel.json"
ALERTS = ETC / "prometheus" / "alerts.yml"

METRIC = re.compile(r"\b(?:mlxcel_|llamacpp:)[a-z_]+")


def known() -> set[str]:
    """The names of all samples that /metrics may have."""
    metrics = Metrics()
    metrics.count(200)
    snapshot = Snapshot([SlotState(0)], 0, 0, 0, Totals())
    text = metrics.render(snapshot, Plan("legacy", 1, 8, 8, False))
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    return {re.split(r"[{ ]", line)[0] for line in lines}


def dashboard() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(DASHBOARD.read_text())
    return found


def panels() -> list[dict[str, Any]]:
    return [panel for panel in dashboard()["panels"] if panel["type"] != "row"]


def expressions() -> list[str]:
    return [target["expr"] for panel in panels() for target in panel["targets"]]


def rules() -> list[dict[str, Any]]:
    # Types for it are not installed; mlx-lm needs the package itself.
    yaml = importlib.import_module("yaml")
    (group,) = yaml.safe_load(ALERTS.read_text())["groups"]
    return list(group["rules"])


def test_every_metric_of_the_dashboard_exists() -> None:
    assert len(expressions()) > 20
    for expression in expressions():
        named = set(METRIC.findall(expression))
        assert named, expression
        assert named <= known(), expression


def test_every_metric_of_the_variables_exists() -> None:
    queries = [v["definition"] for v in dashboard()["templating"]["list"][1:]]
    assert len(queries) == 2
    assert set(METRIC.findall(" ".join(queries))) <= known()


def test_every_panel_asks_the_chosen_source_about_the_chosen_servers() -> None:
    source = {"type": "prometheus", "uid": "${datasource}"}
    for panel in panels():
        assert panel["datasource"] == source
        for target in panel["targets"]:
            assert target["datasource"] == source
            selectors = len(METRIC.findall(target["expr"]))
            assert target["expr"].count('{job="$job", instance=~"$instance"}') == (
                selectors
            )


def test_panels_have_a_title_a_number_and_a_place_of_their_own() -> None:
    everything = dashboard()["panels"]
    assert len({panel["id"] for panel in everything}) == len(everything)
    assert len({panel["title"] for panel in everything}) == len(everything)
    cells: set[tuple[int, int]] = set()
    for panel in everything:
        at = panel["gridPos"]
        assert 0 <= at["x"] < at["x"] + at["w"] <= 24
        mine = set(
            itertools.product(
                range(at["x"], at["x"] + at["w"]), range(at["y"], at["y"] + at["h"])
            )
        )
        assert not mine & cells, panel["title"]
        cells |= mine


def test_every_metric_of_the_alerts_exists() -> None:
    found = rules()
    assert len(found) == 8
    for rule in found:
        named = set(METRIC.findall(rule["expr"]))
        assert named <= known(), rule["alert"]
        assert named or "up{" in rule["expr"]


def test_every_alert_says_how_bad_it_is_and_what_to_do() -> None:
    for rule in rules():
        assert rule["labels"]["severity"] in ("warning", "critical")
        assert "$labels.instance" in rule["annotations"]["summary"]
        assert rule["annotations"]["description"].endswith(".")


def test_the_queries_are_balanced() -> None:
    for text in [*expressions(), *(rule["expr"] for rule in rules())]:
        for opening, closing in ("()", "{}", "[]"):
            assert text.count(opening) == text.count(closing), text


@pytest.mark.skipif(
    shutil.which("promtool") is None, reason="promtool is not installed"
)
def test_prometheus_accepts_the_alerts() -> None:
    found = subprocess.run(
        ["promtool", "check", "rules", str(ALERTS)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert found.returncode == 0, found.stdout + found.stderr
    assert "SUCCESS: 8 rules found" in found.stdout
