"""How much memory there is: the machine's, or what a control group leaves of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlxceld import check, memory
from mlxceld.backend import may_be_cuda
from mlxceld.memory import cgroup_limits, memory_limit_bytes, physical_memory
from mlxceld.settings import EngineSettings, Settings

GIB = 1 << 30


def limits(tmp_path: Path, membership: str, files: dict[str, str]) -> list[int]:
    """What is found for a membership file and files below the root of the groups."""
    (tmp_path / "member").write_text(membership)
    for name, text in files.items():
        file = tmp_path / "root" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return sorted(cgroup_limits(tmp_path / "member", tmp_path / "root"))


def test_a_service_has_its_own_limit_and_those_of_the_slices_above(
    tmp_path: Path,
) -> None:
    files = {
        "memory.max": "max\n",
        "system.slice/memory.max": f"{8 * GIB}\n",
        "system.slice/mlxcel.service/memory.max": f"{4 * GIB}\n",
        "user.slice/memory.max": "1\n",
    }
    found = limits(tmp_path, "0::/system.slice/mlxcel.service\n", files)
    assert found == [4 * GIB, 8 * GIB]


def test_in_a_container_the_root_is_the_group(tmp_path: Path) -> None:
    files = {"memory.max": f"{2 * GIB}\n"}
    assert limits(tmp_path, "0::/\n", files) == [2 * GIB]


def test_a_path_of_the_host_leads_nowhere_and_the_root_counts(tmp_path: Path) -> None:
    files = {"memory/memory.limit_in_bytes": f"{2 * GIB}\n"}
    member = "5:cpu,cpuacct:/docker/abc\n4:memory:/docker/abc\n0::/\n"
    assert limits(tmp_path, member, files) == [2 * GIB]


def test_no_limit_is_none(tmp_path: Path) -> None:
    assert limits(tmp_path, "0::/a\n", {"a/memory.max": "max\n"}) == []
    assert limits(tmp_path, "nonsense\n", {}) == []
    assert list(cgroup_limits(tmp_path / "gone", tmp_path)) == []


def test_the_smaller_of_machine_and_group_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    alone = physical_memory()
    assert alone is not None
    monkeypatch.setattr(memory, "cgroup_limits", lambda: iter([1 << 62, 4000]))
    assert physical_memory() == 4000
    assert memory_limit_bytes("auto") == 3000
    assert memory_limit_bytes("50%") == 2000
    monkeypatch.setattr(memory, "cgroup_limits", lambda: iter([1 << 62]))
    assert physical_memory() is not None
    assert (physical_memory() or 0) >= alone


@pytest.mark.parametrize(
    ("device", "system", "installed", "may"),
    [
        ("auto", "Linux", "mlx-cuda-13", True),
        ("gpu", "Linux", "mlx-cuda-12", True),
        ("cpu", "Linux", "mlx-cuda-13", False),
        ("auto", "Linux", "mlx-cpu", False),
        ("gpu", "Darwin", "mlx-metal", False),
    ],
)
def test_where_a_graphics_card_may_serve(
    device: str, system: str, installed: str, may: bool
) -> None:
    assert may_be_cuda(device, system=system, installed=installed) is may


def test_the_front_takes_no_share_of_a_memory_it_cannot_see(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(check, "may_be_cuda", lambda device: True)
    auto, given = EngineSettings(), EngineSettings(memory_limit=5 * GIB)
    assert check.memory_limit(Settings(engine=auto)) is None
    assert check.memory_limit(Settings(engine=given)) == 5 * GIB
    monkeypatch.setattr(check, "may_be_cuda", lambda device: False)
    assert check.memory_limit(Settings(engine=auto)) == memory_limit_bytes("auto")
