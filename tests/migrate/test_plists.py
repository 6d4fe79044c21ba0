"""Property lists are changed in place."""

from __future__ import annotations

import plistlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlxceld.migrate.plists import changed, lost_comments, shown
from mlxceld.problems import Refused

HEAD = """\
<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE plist PUBLIC "-//Apple//DTD PLIST 1.0//EN" \
"http://www.apple.com/DTDs/PropertyList-1.0.dtd">
"""

JOB = f"""\
{HEAD}<plist version="1.0">
<dict>
\t<!-- the box in the hall -->
\t<key>Label</key>  <string>test.llm</string>
\t<key>ProgramArguments</key>
\t<array>
\t\t<string>/usr/local/bin/llama-server</string>
\t\t<string>-c</string> <string>8192</string>
\t</array>
\t<key>EnvironmentVariables</key>
\t<dict>
\t\t<key>LLAMA_ARG_N_PARALLEL</key>
\t\t<string>4</string>
\t\t<key>HOME</key><string>/var/llm</string>
\t\t<key>LLAMA_ARG_PORT</key><string>80</string>
\t</dict>
\t<key>KeepAlive</key><dict><key>ProgramArguments</key><true/></dict>
\t<key>ThrottleInterval</key><integer>30</integer>
</dict>
</plist>
"""

ARGUMENTS = ["/usr/bin/mlxcel-server", "--config", "/etc/a & b.toml"]


def test_only_arguments_and_moved_variables_change() -> None:
    names = ["LLAMA_ARG_N_PARALLEL", "LLAMA_ARG_PORT"]
    new = changed(JOB.encode(), ARGUMENTS, names, "a.plist").decode()
    assert new == JOB.replace(
        "/usr/local/bin/llama-server</string>\n"
        "\t\t<string>-c</string> <string>8192</string>\n",
        "/usr/bin/mlxcel-server</string>\n"
        "\t\t<string>--config</string>\n"
        "\t\t<string>/etc/a &amp; b.toml</string>\n",
    ).replace(
        "\t\t<key>LLAMA_ARG_N_PARALLEL</key>\n\t\t<string>4</string>\n", ""
    ).replace("\t\t<key>LLAMA_ARG_PORT</key><string>80</string>\n", "")


def test_a_second_change_changes_nothing() -> None:
    once = changed(JOB.encode(), ARGUMENTS, ["LLAMA_ARG_PORT"], "a.plist")
    assert changed(once, ARGUMENTS, ["LLAMA_ARG_PORT"], "a.plist") == once


def test_what_runs_is_the_program_where_one_is_named() -> None:
    job = JOB.replace(
        "<key>ProgramArguments</key>\n",
        "<key>Program</key><string>/old</string>\n\t<key>ProgramArguments</key>\n",
        1,
    )
    new = plistlib.loads(changed(job.encode(), ARGUMENTS, [], "a.plist"))
    assert new["Program"] == "/usr/bin/mlxcel-server"
    assert new["ProgramArguments"] == ARGUMENTS


def test_a_job_with_a_program_alone_gets_arguments() -> None:
    job = f"""\
{HEAD}<plist><dict>
  <key>Program</key><string>/a</string>
</dict></plist>
"""
    new = changed(job.encode(), ARGUMENTS, [], "a.plist").decode()
    assert new == job.replace(
        "/a</string>\n",
        "/usr/bin/mlxcel-server</string>\n"
        "  <key>ProgramArguments</key><array>\n"
        "    <string>/usr/bin/mlxcel-server</string>\n"
        "    <string>--config</string>\n"
        "    <string>/etc/a &amp; b.toml</string>\n"
        "  </array>\n",
    )


def test_a_layout_that_hides_its_keys_is_left_to_its_owner() -> None:
    job = JOB.replace("<key>ProgramArguments</key>\n", "<key>Label</key>\n", 1)
    with pytest.raises(Refused, match="cannot be changed in place"):
        changed(job.encode(), ARGUMENTS, [], "a.plist")


def test_comments_between_the_arguments_are_told() -> None:
    job = JOB.replace("<string>-c", "<!-- the\n context -->\n<string>-c")
    new = changed(job.encode(), ARGUMENTS, [], "a.plist")
    assert lost_comments(job.encode(), new) == ["<!-- the context -->"]
    assert lost_comments(new, new) == []


def test_a_binary_list_stays_binary() -> None:
    data = plistlib.dumps(plistlib.loads(JOB.encode()), fmt=plistlib.FMT_BINARY)
    new = changed(data, ARGUMENTS, [], "a.plist")
    assert new.startswith(b"bplist00")
    assert plistlib.loads(new)["ProgramArguments"] == ARGUMENTS
    assert plistlib.loads(new)["ThrottleInterval"] == 30
    assert "<string>--config</string>" in shown(new)


_TEXT = st.text(alphabet="a<&>'\" é%", max_size=8)


@settings(max_examples=60, deadline=None)
@given(
    st.dictionaries(st.sampled_from(["Label", "A", "B"]), _TEXT | st.booleans()),
    st.lists(_TEXT, max_size=4),
    st.dictionaries(st.sampled_from(["X", "Y", "Z"]), _TEXT),
    st.sampled_from([b"\n", b"", b"\n\n"]),
)
def test_everything_else_stays_whatever_it_is(
    others: dict[str, object],
    arguments: list[str],
    variables: dict[str, str],
    gap: bytes,
) -> None:
    job = {
        **others,
        "ProgramArguments": arguments,
        "EnvironmentVariables": variables,
        "Deep": {"ProgramArguments": ["x"]},
    }
    data = plistlib.dumps(job, sort_keys=False).replace(b"\n", gap or b" ")
    if not gap:
        data = data.replace(b"> <", b"><")
    job = plistlib.loads(data)
    new = plistlib.loads(changed(data, ARGUMENTS, ["X"], "a.plist"))
    assert new.pop("ProgramArguments") == ARGUMENTS
    job.pop("ProgramArguments")
    job["EnvironmentVariables"].pop("X", None)
    assert new == job
