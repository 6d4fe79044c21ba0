"""The launchd property lists, from one template: those in `etc/launchd`, and here.

Written as text rather than by `plistlib`, which knows no comments.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal
from xml.sax.saxutils import escape

DAEMON = "ai.mlxcel.server"
"""Label of the system daemon, and the name of its file."""

AGENT = "ai.mlxcel.server.user"
"""Label of one person's agent."""

PROGRAM = "/opt/homebrew/bin/mlxcel-server"
"""Where the files in `etc` look for the program."""

STOP_MARGIN = 15
"""Seconds between `server.drain_timeout` and the end of launchd's patience."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What differs between one property list and another."""

    command: Sequence[str]
    log: str
    """The file that gets the log; launchd makes it, but no folder."""
    user: str = ""
    """Who a system daemon runs as; empty in an agent."""
    drain_timeout: float = 15.0


def daemon(wanted: Wanted | None = None) -> str:
    """The property list of a system daemon, for /Library/LaunchDaemons."""
    if wanted is not None:
        return _plist(DAEMON, wanted, "")
    config = "/opt/homebrew/etc/mlxcel/mlxcel.toml"
    wanted = Wanted(
        command=(PROGRAM, "--config", config),
        log="/Library/Logs/mlxcel-server.log",
        user="_mlxcel",
    )
    return _plist(DAEMON, wanted, _ABOUT_DAEMON)


def agent(wanted: Wanted | None = None) -> str:
    """The property list of one person's agent, for ~/Library/LaunchAgents."""
    if wanted is not None:
        return _plist(AGENT, wanted, "")
    wanted = Wanted(
        command=(PROGRAM, "--config", "/Users/USER/.config/mlxcel/mlxcel.toml"),
        log="/Users/USER/Library/Logs/mlxcel-server.log",
    )
    return _plist(AGENT, wanted, _ABOUT_AGENT)


def _plist(label: str, wanted: Wanted, about: str) -> str:
    words = "\n".join(f"    {_string(word)}" for word in wanted.command)
    user = _USER.format(user=_string(wanted.user)) if wanted.user else ""
    kind: Literal["daemon", "agent"] = "daemon" if wanted.user else "agent"
    return _TEMPLATE.format(
        about=about,
        label=_string(label),
        words=words,
        user=user,
        log=_string(wanted.log),
        stop=math.ceil(wanted.drain_timeout) + STOP_MARGIN,
        when=_WHEN[kind],
    )


def _string(text: str) -> str:
    return f"<string>{escape(text)}</string>"


_ABOUT_DAEMON = """\
<!--
  For /Library/LaunchDaemons; the flag install-service=system of mlxcel-server writes it
  with the names of a machine. Then: sudo launchctl bootstrap system FILE
  The user has to exist, and the log has to be a file that this user may write.
-->
"""

_ABOUT_AGENT = """\
<!--
  For ~/Library/LaunchAgents, with your own name instead of USER; the flag
  install-service=user of mlxcel-server does that.
  Then: launchctl bootstrap gui/$UID FILE
-->
"""

_WHEN = {
    "daemon": "<!-- Starts with the machine, before anybody logs in. -->",
    "agent": "<!-- Starts when its user logs in. -->",
}

_USER = """\
  <!-- Not root: it needs to read the model and nothing else. -->
  <key>UserName</key>
  {user}
"""

_TEMPLATE = """\
<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE plist PUBLIC "-//Apple//DTD PLIST 1.0//EN" \
"http://www.apple.com/DTDs/PropertyList-1.0.dtd">
{about}<plist version="1.0">
<dict>
  <key>Label</key>
  {label}
  <key>ProgramArguments</key>
  <array>
{words}
  </array>
{user}  {when}
  <key>RunAtLoad</key>
  <true/>
  <!-- Started again after a crash or a failure, not after it was told to stop. -->
  <key>KeepAlive</key>
  <dict>
    <key>SuccessfulExit</key>
    <false/>
  </dict>
  <!-- Seconds between two starts: a wrong configuration is not mended by haste. -->
  <key>ThrottleInterval</key>
  <integer>30</integer>
  <!-- Seconds to end in: more than running requests get by server.drain_timeout. -->
  <key>ExitTimeOut</key>
  <integer>{stop}</integer>
  <!-- Without it the processor is held back as for work that nobody waits for. -->
  <key>ProcessType</key>
  <string>Interactive</string>
  <key>SoftResourceLimits</key>
  <dict>
    <key>NumberOfFiles</key>
    <integer>8192</integer>
  </dict>
  <!-- Files that the daemon makes are for its user alone: octal 077. -->
  <key>Umask</key>
  <integer>63</integer>
  <!-- launchd does not rotate it; the daemon logs one line for each request. -->
  <key>StandardErrorPath</key>
  {log}
</dict>
</plist>
"""
