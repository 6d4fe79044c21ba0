"""The systemd units, from one template: those in `etc/systemd`, and what is installed.

They work on systemd 245 and later: no key is newer. What is newer and worth having
stands beside them as a comment or as a drop-in. Each line that gives the service less
freedom, or leaves it more than others would, says why.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

NAME = "mlxcel-server"

PROGRAM = "/usr/local/bin/mlxcel-server"
"""Where the units in `etc` look for the program."""

DRAIN_MARGIN = 15
"""Seconds between `server.drain_timeout` and the end of systemd's patience."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What differs between one unit and another."""

    command: Sequence[str] = (PROGRAM, "--config", "%E/mlxcel/mlxcel.toml")
    """The words of the command line; `verbatim` says whether they are systemd's."""
    verbatim: bool = False
    """Whether the words hold specifiers (`%E`) on purpose and are not quoted."""
    drain_timeout: float = 15.0
    """Seconds that running requests get at the end."""
    watchdog_timeout: float = 60.0
    """Seconds after which the daemon itself ends a silent engine; 0 is never."""
    sees_home: bool = False
    """Whether the program or its files lie in a home folder."""


def service(wanted: Wanted | None = None) -> str:
    """The system service of one model."""
    wanted = wanted or Wanted(verbatim=True)
    return _head(_ONE, _CHANGE, _NETWORK) + _system(wanted, "mlxcel") + _INSTALL_SYSTEM


def template() -> str:
    """The system service of several models, one instance for each file."""
    command = (PROGRAM, "--config", "%E/mlxcel/%i.toml")
    wanted = Wanted(command=command, verbatim=True)
    head = _head("MLX language model %i behind an HTTP API", _INSTANCES, _NETWORK)
    return head + _system(wanted, "mlxcel/%i") + _INSTALL_SYSTEM


def user_service(wanted: Wanted) -> str:
    """The service of one person, under their own systemd.

    Without the sandbox of the system service: most of it is not for users to ask.
    """
    return (
        _head(_ONE, _CHANGE_OWN)
        + "\n[Service]\n"
        + _life(wanted)
        + _USER_LIMITS
        + "\n[Install]\nWantedBy=default.target\n"
    )


def socket() -> str:
    """The socket that starts the service when the first client comes."""
    return _SOCKET


def notify_reload() -> str:
    """The drop-in that makes `systemctl reload` wait until the reload is done."""
    return _NOTIFY_RELOAD


def quoted(words: Sequence[str]) -> str:
    """A command line as systemd reads it back: quotes, `%%` and `$$` where needed.

    The first word is the program, in which `$` stands for itself. systemd takes no
    program with quotes or backslashes in its name, however they are written.
    """
    program, *more = words
    return " ".join([_quote(program), *(_quote(w.replace("$", "$$")) for w in more)])


def _quote(word: str) -> str:
    word = word.replace("%", "%%")
    plain = word.replace("\\", "\\\\").replace('"', '\\"')
    plain = plain.replace("\n", "\\n").replace("\t", "\\t")
    if word and plain == word and not any(c in word for c in " ';"):
        return word
    return f'"{plain}"'


def _line(wanted: Wanted, *more: str) -> str:
    words = (*wanted.command, *more)
    return " ".join(words) if wanted.verbatim else quoted(words)


def _life(wanted: Wanted) -> str:
    """How it starts, reloads and ends; the same under every manager."""
    return _LIFE.format(
        command=_line(wanted),
        check=_line(wanted, "--check-config"),
        stop=math.ceil(wanted.drain_timeout) + DRAIN_MARGIN,
        watchdog=math.ceil(2 * wanted.watchdog_timeout),
    )


def _system(wanted: Wanted, folder: str) -> str:
    home = _HOME_READ if wanted.sees_home else _HOME_HIDDEN
    return (
        "\n[Service]\n"
        + _life(wanted)
        + _FOLDERS.format(folder=folder)
        + _SANDBOX.format(home=home)
    )


def _head(description: str, about: str, network: str = "") -> str:
    return about + _HEAD.format(description=description, network=network)


_ONE = "one MLX language model behind an HTTP API"

_CHANGE = """\
# To change something, write a drop-in with `systemctl edit mlxcel-server`.
"""

_CHANGE_OWN = """\
# To change something, write a drop-in with `systemctl --user edit mlxcel-server`.
"""

_INSTANCES = """\
# Several models: `systemctl enable --now mlxcel-server@NAME` serves the one that
# /etc/mlxcel/NAME.toml names. Each file needs a server.port of its own, and an
# engine.memory_limit, since they share one memory.
"""

_NETWORK = """
# For server.host other than loopback, and for models that are downloaded.
After=network-online.target
Wants=network-online.target"""

_HEAD = """\
[Unit]
Description=mlxcel-server: {description}
Documentation=man:mlxcel-server(1){network}
# A daemon that fails five times within ten minutes stays down: loading a model over
# and over helps nobody.
StartLimitIntervalSec=600
StartLimitBurst=5
"""

_LIFE = """\
Type=notify
# Only the daemon itself may report, not the engine it starts.
NotifyAccess=main
ExecStart={command}
# The new configuration is checked first, so that a reload with a mistake fails here
# and says why; the daemon would refuse it as well, and go on with the old one.
ExecReload={check}
ExecReload=/bin/kill -HUP $MAINPID
# On stop the daemon alone gets the signal and lets running requests end, for up to
# server.drain_timeout seconds; keep TimeoutStopSec above that.
KillMode=mixed
TimeoutStopSec={stop}
# While the weights load the daemon asks for more time by itself.
TimeoutStartSec=120
# Fed by the engine's signs of life, not by the HTTP server. The daemon ends a silent
# engine by itself after engine.watchdog_timeout: keep WatchdogSec well above.
WatchdogSec={watchdog}
Restart=on-failure
RestartSec=5
# A wrong command line (2) or configuration (78) is not mended by trying again.
RestartPreventExitStatus=2 78
# When memory runs out the engine alone is ended; the daemon starts it again.
OOMPolicy=continue
LimitNOFILE=65536
# A core dump would hold the weights, and prompts and keys as well.
LimitCORE=0
"""

_FOLDERS = """\

# A user that exists only while the service runs and owns nothing but these folders.
# Models have to be readable for everybody, or lie in /var/lib/{folder}.
DynamicUser=yes
User=mlxcel
ConfigurationDirectory=mlxcel
StateDirectory={folder}
CacheDirectory=mlxcel
# Slots that are saved and models that are downloaded are nobody else's business.
StateDirectoryMode=0700
CacheDirectoryMode=0700
UMask=0077
# Downloads from Hugging Face, if any, go where the service may write.
Environment=HF_HOME=/var/cache/mlxcel/huggingface
# API keys: one a line in this file, readable for root alone (systemd 247 and later).
# Without keys everybody who reaches the port may use it.
#LoadCredential=api-key:/etc/mlxcel/api-key
"""

_HOME_HIDDEN = """\
# Models below /home need `read-only` here.
ProtectHome=yes"""

_HOME_READ = """\
# The program or its files lie in a home folder.
ProtectHome=read-only"""

_SANDBOX = """\

# The file system is read-only but for the folders above and a /tmp of its own, where
# MLX compiles kernels: it must stay writable and executable.
ProtectSystem=strict
{home}
PrivateTmp=yes
# Nothing of the machine's set-up can be changed or looked into.
ProtectClock=yes
ProtectHostname=yes
ProtectKernelTunables=yes
ProtectKernelModules=yes
ProtectKernelLogs=yes
ProtectControlGroups=yes
# No privileges, and no way to get any. Ports below 1024 come through the .socket unit.
NoNewPrivileges=yes
CapabilityBoundingSet=
AmbientCapabilities=
PrivateUsers=yes
RestrictSUIDSGID=yes
RestrictNamespaces=yes
RestrictRealtime=yes
LockPersonality=yes
RemoveIPC=yes
KeyringMode=private
# The network is for HTTP, Unix sockets for local clients, for the engine and for
# reports to systemd.
RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX
# PrivateDevices=yes would hide the GPU. These are NVIDIA's devices, which have to be
# there before the service starts (nvidia-persistenced.service sees to that); without a
# GPU put PrivateDevices=yes in a drop-in.
DevicePolicy=closed
DeviceAllow=char-nvidia rw
DeviceAllow=char-nvidia-frontend rw
DeviceAllow=char-nvidia-uvm rw
DeviceAllow=char-nvidia-caps rw
# MemoryDenyWriteExecute is left out: MLX and CUDA make machine code as they run.
# The compiler that MLX calls on a CPU is a program of this architecture, too.
SystemCallArchitectures=native
SystemCallFilter=@system-service
SystemCallFilter=~@privileged @resources
# Programs that set their own scheduling or limits are told no, not killed.
SystemCallErrorNumber=EPERM
"""

_USER_LIMITS = """\
NoNewPrivileges=yes
# Slots that are saved and logs are nobody else's business.
UMask=0077
"""

_INSTALL_SYSTEM = "\n[Install]\nWantedBy=multi-user.target\n"

_SOCKET = """\
[Unit]
Description=mlxcel-server: the address that starts the service
Documentation=man:mlxcel-server(1)

[Socket]
# These addresses count instead of server.host and server.port.
ListenStream=127.0.0.1:8080
# For local clients only, with the rights of a file:
#ListenStream=/run/mlxcel-server.sock
#SocketMode=0660
#SocketGroup=mlxcel
FileDescriptorName=http
NoDelay=yes

[Install]
WantedBy=sockets.target
"""

_NOTIFY_RELOAD = """\
# For systemd 253 and later: `systemctl reload` waits until the daemon has reloaded.
# Copy it to /etc/systemd/system/mlxcel-server.service.d/notify-reload.conf
[Service]
Type=notify-reload
# systemd sends the signal itself; the daemon checks the configuration before use.
ExecReload=
"""
