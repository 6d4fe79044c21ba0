from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import server
from benchmarks.clients import Answer, Gap
from benchmarks.sides import Run, gap_table, remarks, table

SCRIPTED = "{python} -m tests.benchmarks.scripted {port}"


def measured(
    tmp_path: Path, *more: str, longest: int = 40, status: int = 0
) -> dict[str, Any]:
    out = tmp_path / "out.json"
    line = ["--ours", SCRIPTED, "--peer", SCRIPTED, "--logs", str(tmp_path)]
    line += ["--shortest", "4", "--longest", str(longest), "--tokens", "4"]
    assert server.main([*line, "--out", str(out), *more]) == status
    report: dict[str, Any] = json.loads(out.read_text())
    return report


def test_sides_take_turns_with_the_same_prompts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    few = ["--clients", "1", "2", "--requests", "2", "--pairs", "2"]
    report = measured(tmp_path, *few, "--keep")
    order = [(run["pair"], run["side"], run["clients"]) for run in report["runs"]]
    assert order == [
        *((0, side, n) for side in ("peer", "ours") for n in (1, 2)),
        *((1, side, n) for side in ("ours", "peer") for n in (1, 2)),
    ]
    peer, ours = (
        [a["prompt_tokens"] for a in report["runs"][i]["answers"]] for i in (1, 3)
    )
    assert ours == peer
    assert len(ours) == 4
    assert all(
        run["measures"]["tokens"] == 4 * run["clients"] * 2 for run in report["runs"]
    )
    assert all(run["measures"]["host_bytes"] > 1 << 20 for run in report["runs"])
    assert report["settings"]["longest"] == 40
    assert report["commands"]["ours"][1:3] == ["-m", "tests.benchmarks.scripted"]
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].startswith("| clients | tok/s | ratio | TTFT p50 s |")
    assert lines[3].startswith("| 1 | ")
    assert lines[3].endswith("| 0 / 0 | 0 / 0 | 4 of 4 |")
    assert lines[4].endswith("| 0 / 0 | 0 / 0 | 8 of 8 |")


def test_failures_are_shown_and_are_the_exit_status(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The scripted server refuses prompts of more than 60 words; a warm-up has them
    not, being of at most the shortest length here."""
    few = ["--clients", "1", "--requests", "2", "--pairs", "1", "--only", "ours"]
    monkey = pytest.MonkeyPatch()
    monkey.setattr(server, "_WARM", 4)
    report = measured(tmp_path, *few, longest=5000, status=1)
    monkey.undo()
    failed = report["runs"][0]["measures"]["failures"]
    assert failed >= 1
    said = capsys.readouterr().out
    assert f"| {failed} / 0 |" in said
    assert "ours failed: Failure: HTTP/1.0 400 too long" in said


def test_a_server_that_ends_at_once_ends_the_measurement(tmp_path: Path) -> None:
    command = "{python} -c 'raise SystemExit(\"out of luck\")'"
    with pytest.raises(SystemExit, match=r"status 1 before it was ready\nout of luck"):
        measured(tmp_path, "--ours", command, "--only", "ours", "--clients", "1")


def test_a_command_with_a_model_needs_one(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        server.main(["--ours", "serve {model}", "--peer", "http://127.0.0.1:1"])
    assert "--model is needed" in capsys.readouterr().err


def run_of(side: str, pair: int, **measures: float) -> Run:
    known = {"failures": 0.0, "short": 0.0, **measures}
    return Run(side, pair, 8, known, [answer(text="same"), answer(text=side)])


def answer(**more: Any) -> Answer:
    made = Answer(10, 0.0, 1.0, prompt_tokens=10, told=True)
    for name, value in more.items():
        setattr(made, name, value)
    return made


def test_a_ratio_is_the_median_of_the_pairs_ratios() -> None:
    runs = [
        run_of("ours", 0, tokens_per_second=30.0),
        run_of("peer", 0, tokens_per_second=10.0),
        run_of("ours", 1, tokens_per_second=50.0),
        run_of("peer", 1, tokens_per_second=25.0),
        run_of("ours", 2, tokens_per_second=40.0),
        run_of("peer", 2, tokens_per_second=40.0),
    ]
    assert table(runs).splitlines() == [
        "| clients | tok/s | ratio | failed | short | same text |",
        "| --- | --- | --- | --- | --- | --- |",
        "| 8 | 40.0 / 25.0 | 2.00 | 0 / 0 | 0 / 0 | 3 of 6 |",
    ]


def test_one_side_alone_has_no_ratio() -> None:
    assert table([run_of("ours", 0, tokens_per_second=30.0)]).splitlines()[2] == (
        "| 8 | 30.0 / - | nan | 0 / 0 | 0 / 0 | 0 of 0 |"
    )


def test_counts_that_disagree_are_remarked() -> None:
    runs = [
        Run("ours", 0, 1, {}, [answer(), answer(prompt_tokens=12)]),
        Run("peer", 0, 1, {}, [answer(told=False), answer(failure="broke off")]),
    ]
    assert remarks(runs) == [
        "ours counts other prompt tokens than wanted in 1 of 2 answers, such as 12 "
        "for 10",
        "peer failed: broke off",
        "peer told no usage in 1: chunks were counted",
    ]


def test_gaps_are_a_table_of_their_own() -> None:
    gap = Gap(0.01, 0.02, 0.5, 31, 8192, 2.25)
    lost = Gap(0.0, 0.0, 0.0, 0, 0, 0.0, failure="broke off")
    runs = [
        Run("ours", 0, 2, {}, gap=gap),
        Run("peer", 0, 2, {}, gap=lost),
    ]
    assert gap_table(runs).splitlines()[2:] == [
        "| ours | 10.0 | 20.0 | 500.0 | 31 | 8192 | 2.25 | 0 |",
        "| peer | nan | nan | nan | nan | nan | nan | broke off |",
    ]
