"""What is installed, where it lands, and that it can be imported from there."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from pathlib import Path

import pytest

import mlxceld
from mlxceld.api import monitor

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def packages_on_disk() -> set[str]:
    """Every folder with an `__init__.py`, under its installed name."""
    found = {
        ".".join(init.parent.relative_to(ROOT).parts)
        for top in ("mlxceld", "migrate")
        for init in (ROOT / top).rglob("__init__.py")
    }
    return {re.sub(r"^migrate\b", "mlxceld.migrate", name) for name in found}


def test_every_package_is_named_in_the_project_file() -> None:
    assert set(PROJECT["tool"]["setuptools"]["packages"]) == packages_on_disk()


def test_every_folder_with_code_is_a_package() -> None:
    for top in ("mlxceld", "migrate"):
        for file in (ROOT / top).rglob("*.py"):
            assert (file.parent / "__init__.py").exists(), file


def imported(top: str) -> set[str]:
    """Top-level modules that the code under `top` imports."""
    found: set[str] = set()
    for file in (ROOT / top).rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Import):
                found |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                found.add(node.module.split(".")[0])
    return found


def named(requirements: list[str]) -> set[str]:
    """The modules of requirements; most of ours are called like their packages."""
    names = (re.match(r"[\w-]+", wanted) for wanted in requirements)
    modules = {name[0].replace("-", "_") for name in names if name}
    return {"yaml" if module == "pyyaml" else module for module in modules}


def test_what_is_imported_is_asked_for() -> None:
    known = set(sys.stdlib_module_names) | {"mlxceld", "tests"}
    project = PROJECT["project"]
    wanted = named(project["dependencies"])
    used = imported("mlxceld") | imported("migrate")
    assert used - {"argparse_manpage"} <= known | wanted
    wanted |= named(project["optional-dependencies"]["test"])
    assert "argparse_manpage" in wanted  # man pages are made in a source tree only
    assert imported("tests") <= known | wanted | {"benchmarks"}


def test_the_two_backends_are_not_asked_for_together() -> None:
    project = PROJECT["project"]
    extras = project["optional-dependencies"]
    for name, wanted in {**extras, "": project["dependencies"]}.items():
        backends = re.findall(r"mlx\[(\w+)\]", " ".join(wanted))
        assert len(backends) == (name in {"cpu", "cuda"}), (name, backends)


def test_the_backends_are_asked_for_on_linux_only() -> None:
    for name in ("cpu", "cuda"):
        (wanted,) = PROJECT["project"]["optional-dependencies"][name]
        assert wanted.endswith("; platform_system == 'Linux'")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from a copy so that nothing is left in the source tree."""
    work = tmp_path_factory.mktemp("build")
    copied = ["pyproject.toml", "README.md", "LICENSE", "mlxceld", "migrate"]
    copied += ["man", "completions", "etc", "docs"]
    subprocess.run(
        ["cp", "-R", *(str(ROOT / name) for name in copied), work], check=True
    )
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel"]
    built = subprocess.run(
        [
            *(*pip, "--no-deps", "--no-build-isolation", "--quiet"),
            *("--wheel-dir", str(work / "dist"), str(work)),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    (file,) = (work / "dist").glob("*.whl")
    return file


def test_the_wheel_puts_nothing_but_mlxceld_into_site_packages(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in names}
    release = f"mlxceld-{mlxceld.__version__}"
    # What lies under `.data` goes beside `bin`, not into site-packages.
    assert tops == {"mlxceld", f"{release}.dist-info", f"{release}.data"}
    assert "mlxceld/migrate/__init__.py" in names
    assert "mlxceld/py.typed" in names


def test_the_wheel_holds_every_module_once(wheel: Path) -> None:
    names = [n for n in zipfile.ZipFile(wheel).namelist() if n.endswith(".py")]
    assert len(names) == len(set(names))
    expected = {
        str(Path(*parts, *file.relative_to(ROOT / top).parts))
        for top, parts in (
            ("mlxceld", ["mlxceld"]),
            ("migrate", ["mlxceld", "migrate"]),
        )
        for file in (ROOT / top).rglob("*.py")
    }
    assert set(names) == expected


def test_the_wheel_holds_the_monitor_page(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    files = {path.name for path in (ROOT / "mlxceld" / "web").iterdir()}
    assert {f"mlxceld/web/{name}" for name in files} <= names
    assert files == {"index.html", *monitor.FILES}


def test_the_wheel_brings_man_pages_completions_and_the_sample(wheel: Path) -> None:
    share = f"mlxceld-{mlxceld.__version__}.data/data/share/"
    names = zipfile.ZipFile(wheel).namelist()
    found = {name.removeprefix(share) for name in names if name.startswith(share)}
    assert found >= {
        "man/man1/mlxcel-server.1",
        "man/man1/mlxcel-migrate.1",
        "man/man1/mlxcel-verify.1",
        "man/man5/mlxcel.toml.5",
        "bash-completion/completions/mlxcel-server.bash",
        "bash-completion/completions/mlxcel-migrate.bash",
        "bash-completion/completions/mlxcel-verify.bash",
        "zsh/site-functions/_mlxcel-server",
        "zsh/site-functions/_mlxcel-migrate",
        "zsh/site-functions/_mlxcel-verify",
        "fish/vendor_completions.d/mlxcel-server.fish",
        "fish/vendor_completions.d/mlxcel-migrate.fish",
        "fish/vendor_completions.d/mlxcel-verify.fish",
        "mlxcel/mlxcel.toml",
        "mlxcel/mlxcel.schema.json",
    }


def test_man_finds_the_page_of_an_environment_on_the_path(
    wheel: Path, tmp_path: Path
) -> None:
    man = shutil.which("man")
    if man is None or sys.platform != "linux":
        pytest.skip("there is no man-db here")
    zipfile.ZipFile(wheel).extractall(tmp_path)
    home = tmp_path / f"mlxceld-{mlxceld.__version__}.data" / "data"
    (home / "bin").mkdir()
    path = f"{home / 'bin'}:{os.environ['PATH']}"
    environ = {k: v for k, v in os.environ.items() if k != "MANPATH"} | {"PATH": path}
    for section, name in (("1", "mlxcel-server"), ("5", "mlxcel.toml")):
        done = subprocess.run(
            [man, "-w", section, name],
            env=environ,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.stdout.strip() == str(
            home / f"share/man/man{section}/{name}.{section}"
        )


def test_the_wheel_has_the_command_and_the_license(wheel: Path) -> None:
    archive = zipfile.ZipFile(wheel)
    info = f"mlxceld-{mlxceld.__version__}.dist-info"
    entry = archive.read(f"{info}/entry_points.txt").decode()
    assert "mlxcel-server = mlxceld.cli:main" in entry
    assert "mlxcel-verify = mlxceld.verify.cli:main" in entry
    assert f"{info}/licenses/LICENSE" in archive.namelist()


def test_the_migration_package_can_be_imported_from_the_wheel(
    wheel: Path, tmp_path: Path
) -> None:
    code = (
        f"import sys; sys.path.insert(0, {str(wheel)!r}); import mlxceld.migrate as m"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-c", code + "; print(m.__file__)"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == f"{wheel}/mlxceld/migrate/__init__.py"


def is_installed() -> bool:
    return any(Path(sysconfig.get_path("purelib")).glob("mlxceld-*.dist-info"))


@pytest.mark.skipif(not is_installed(), reason="run by `make test`, which installs it")
def test_the_migration_package_can_be_imported_where_mlxceld_is_installed(
    tmp_path: Path,
) -> None:
    done = subprocess.run(
        [sys.executable, "-I", "-c", "import mlxceld.migrate, migrate"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "No module named 'migrate'" in done.stderr, done.stderr
