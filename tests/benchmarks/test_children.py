from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import children
from tests.engine.processes import gone, until

NVML = """
#include <string.h>
typedef unsigned long long u64;
typedef struct { unsigned pid; u64 used; unsigned a, b; } process;
int nvmlInit_v2(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned *n) { *n = 2; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **d) {
    *d = (void *)(u64)(i + 1); return 0;
}
int nvmlDeviceGetName(void *d, char *s, unsigned n) { strcpy(s, "Toy"); return 0; }
int nvmlDeviceGetMemoryInfo(void *d, u64 *m) {
    m[0] = 9000; m[1] = 1; m[2] = 100 * (u64)d; return 0;
}
int nvmlDeviceGetComputeRunningProcesses_v3(void *d, unsigned *n, process *p) {
    p[0].pid = 41; p[0].used = 7; p[1].pid = 42; p[1].used = 5 * (u64)d;
    p[2].pid = 43; p[2].used = ~0ULL; *n = 3; return 0;
}
"""


@pytest.fixture
def gpu(tmp_path: Path) -> children.Gpu:
    if shutil.which("cc") is None:
        pytest.skip("needs a C compiler")
    source, library = tmp_path / "nvml.c", tmp_path / "libnvml.so"
    source.write_text(NVML)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
    return children.Gpu(str(library))


def test_the_memory_of_all_devices_is_added_up(gpu: children.Gpu) -> None:
    assert (gpu.name, gpu.used()) == ("Toy", 300)


def test_processes_count_where_the_library_knows_what_they_hold(
    gpu: children.Gpu,
) -> None:
    assert gpu.used_by([42]) == 5 + 10
    assert gpu.used_by([41, 42]) == 7 + 7 + 5 + 10
    assert gpu.used_by([43]) == 0
    assert gpu.used_by([1]) == 0


def test_a_library_without_a_device_is_none_at_all() -> None:
    with pytest.raises(OSError, match="no-such"):
        children.Gpu("libno-such.so")


def test_a_watch_takes_what_is_above_the_start_for_unknown_processes(
    gpu: children.Gpu,
) -> None:
    watch = children.Watch(os.getpid(), gpu, before=120)
    until(lambda: watch.device > 0 and watch.host > 0)
    watch.stop()
    assert watch.device == watch.of_devices == 300 - 120
    assert watch.of_processes == 0
    assert watch.host == pytest.approx(children.resident([os.getpid()]), rel=0.5)
    watch.reset()
    assert (watch.host, watch.device) == (0, 0)


PARENT = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(99)"])
print("a port:", sys.argv[1], child.pid, flush=True)
time.sleep(99)
"""


def test_a_child_is_started_counted_and_ended_with_its_own_children(
    tmp_path: Path,
) -> None:
    script, log = tmp_path / "parent.py", tmp_path / "log"
    script.write_text(PARENT)
    child = children.Child("{python} {script} {port}", {"script": script}, log)
    try:
        until(lambda: log.read_text().endswith("\n"))
        *_, port, grandchild = child.last_words().split()
        assert int(port) == child.port
        assert children.tree(child.pid) == {child.pid, int(grandchild)}
        alone = children.resident([child.pid])
        assert children.resident([child.pid, int(grandchild)]) > alone > 0
        assert child.ended is None
    finally:
        child.stop()
    assert child.ended is not None
    until(lambda: gone(int(grandchild)))


def test_a_child_that_ends_by_itself_leaves_its_last_words(tmp_path: Path) -> None:
    command = f"{sys.executable} -c 'import sys; sys.exit(\"no {{what}}\")'"
    child = children.Child(command, {"what": "luck"}, tmp_path / "log")
    until(lambda: child.ended is not None)
    assert (child.ended, child.last_words()) == (1, "no luck\n")
    child.stop()
