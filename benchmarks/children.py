"""Servers that a measurement starts, and the memory they take."""

from __future__ import annotations

import ctypes
import os
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

_PERIOD = 0.05
"""Seconds between two looks at the memory."""


class Child:
    """A server under a command of its own, in a process group of its own."""

    def __init__(self, command: str, values: Mapping[str, object], log: Path) -> None:
        """`{name}` in the command is replaced by a value; what it says goes to `log`.

        `{port}` is a free one, `{python}` this interpreter.
        """
        self.port = _free_port()
        known = {**values, "port": self.port, "python": sys.executable}
        self.argv = [word.format(**known) for word in shlex.split(command)]
        self.log = log
        # Neither side looks for its files elsewhere than here.
        quiet = {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
        with log.open("ab") as file:
            self._process = subprocess.Popen(
                self.argv,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                start_new_session=True,
                env={**os.environ, **quiet},
            )
        self.pid = self._process.pid

    @property
    def ended(self) -> int | None:
        """The exit status, when it has ended by itself."""
        return self._process.poll()

    def last_words(self, most: int = 2000) -> str:
        """The end of its log."""
        return self.log.read_bytes()[-most:].decode(errors="replace")

    def stop(self, patience: float = 20.0) -> None:
        """Ask it to end, and end its group when it does not."""
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(patience)
            except subprocess.TimeoutExpired:
                pass
        try:
            # The leader may be gone and a child of it be left: the group is ours.
            os.killpg(self.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            pass
        self._process.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Watch:
    """The most memory that a tree of processes takes, seen every 50 ms.

    `host` is the sum of what its processes have resident: pages that two of them share
    count twice. `device` is what NVIDIA's library says they hold or, where it does not
    know them (as in most containers), what the devices hold more than at the start.
    """

    def __init__(self, pid: int, gpu: Gpu | None, before: int = 0) -> None:
        self._pid = pid
        self._gpu = gpu
        self._before = before
        self._enough = threading.Event()
        self._lock = threading.Lock()
        self._pids = {pid}
        self.reset()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def reset(self) -> None:
        """Forget what was: a new peak begins."""
        with self._lock:
            self.host = self.of_processes = self.of_devices = 0

    def look(self) -> None:
        """Look at what is there now."""
        with self._lock:
            self.host = max(self.host, resident(self._pids))
            if self._gpu is not None:
                more = self._gpu.used() - self._before
                theirs = self._gpu.used_by(self._pids)
                self.of_devices = max(self.of_devices, more)
                self.of_processes = max(self.of_processes, theirs)

    @property
    def device(self) -> int:
        return self.of_processes or self.of_devices

    def stop(self) -> None:
        self._enough.set()
        self._thread.join()

    def _run(self) -> None:
        turn = 0
        while not self._enough.is_set():
            if turn % 10 == 0:
                self._pids = tree(self._pid)
            turn += 1
            self.look()
            self._enough.wait(_PERIOD)


def tree(root: int) -> set[int]:
    """A process and all that descend from it."""
    children: dict[int, list[int]] = {}
    for pid, parent in _parents():
        children.setdefault(parent, []).append(pid)
    found, coming = set(), [root]
    while coming:
        pid = coming.pop()
        found.add(pid)
        coming += children.get(pid, [])
    return found


def _parents() -> Iterable[tuple[int, int]]:
    if not Path("/proc/self/stat").exists():
        said = subprocess.run(
            ["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=True
        )
        for line in said.stdout.splitlines():
            pid, parent = line.split()
            yield int(pid), int(parent)
        return
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            stat = Path(f"/proc/{name}/stat").read_bytes()
        except OSError:
            continue  # ended meanwhile
        yield int(name), int(stat.rpartition(b")")[2].split()[1])


def resident(pids: Iterable[int]) -> int:
    """Bytes of memory that the processes have, those that have ended none."""
    if not Path("/proc/self/statm").exists():
        asked = ",".join(map(str, pids))
        said = subprocess.run(
            ["ps", "-o", "rss=", "-p", asked], capture_output=True, text=True
        )
        return sum(1024 * int(line) for line in said.stdout.split())
    pages = 0
    for pid in pids:
        try:
            pages += int(Path(f"/proc/{pid}/statm").read_bytes().split()[1])
        except OSError:
            continue
    return pages * os.sysconf("SC_PAGE_SIZE")


class _Memory(ctypes.Structure):
    _fields_ = (
        ("total", ctypes.c_ulonglong),
        ("free", ctypes.c_ulonglong),
        ("used", ctypes.c_ulonglong),
    )


class _Process(ctypes.Structure):
    _fields_ = (
        ("pid", ctypes.c_uint),
        ("used", ctypes.c_ulonglong),
        ("instance", ctypes.c_uint),
        ("compute", ctypes.c_uint),
    )


class Gpu:
    """The memory of all NVIDIA devices, from the library that `nvidia-smi` asks.

    Asking it in this process costs microseconds; starting `nvidia-smi` many times a
    second would disturb what is measured.
    """

    def __init__(self, library: str = "libnvidia-ml.so.1") -> None:
        """Raises OSError where there is no such library or no device."""
        self._lib = ctypes.CDLL(library)
        count = ctypes.c_uint()
        if self._lib.nvmlInit_v2() or self._lib.nvmlDeviceGetCount_v2(
            ctypes.byref(count)
        ):
            raise OSError(f"{library} sees no device")
        self._devices = []
        for number in range(count.value):
            device = ctypes.c_void_p()
            if not self._lib.nvmlDeviceGetHandleByIndex_v2(
                number, ctypes.byref(device)
            ):
                self._devices.append(device)

    @property
    def name(self) -> str:
        """Of the first device."""
        text = ctypes.create_string_buffer(96)
        self._lib.nvmlDeviceGetName(self._devices[0], text, 96)
        return text.value.decode()

    def used(self) -> int:
        """Bytes in use on all devices, by whomever."""
        total = 0
        for device in self._devices:
            memory = _Memory()
            if not self._lib.nvmlDeviceGetMemoryInfo(device, ctypes.byref(memory)):
                total += memory.used
        return total

    def used_by(self, pids: Iterable[int]) -> int:
        """Bytes that the library says these processes hold; 0 if it knows none."""
        wanted, total = set(pids), 0
        for device in self._devices:
            found = (_Process * 64)()
            count = ctypes.c_uint(64)
            if self._lib.nvmlDeviceGetComputeRunningProcesses_v3(
                device, ctypes.byref(count), found
            ):
                continue
            for process in found[: count.value]:
                known = process.used != ctypes.c_ulonglong(-1).value
                if process.pid in wanted and known:
                    total += process.used
        return total


def gpu() -> Gpu | None:
    """The NVIDIA devices of this machine, if there are any."""
    try:
        return Gpu()
    except (OSError, AttributeError):
        return None


def settled(gpu: Gpu | None, seconds: float = 10.0) -> int:
    """Bytes in use on the devices once that number has stopped falling."""
    if gpu is None:
        return 0
    end, last = time.monotonic() + seconds, gpu.used()
    while time.monotonic() < end:
        time.sleep(0.5)
        now = gpu.used()
        if now >= last:
            return now
        last = now
    return last
