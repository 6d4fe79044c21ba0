"""launchd's property lists: every argument by its position, byte for byte."""

from __future__ import annotations

import plistlib

import pytest

from mlxceld.migrate.found import Found
from mlxceld.migrate.sources import launchd
from mlxceld.problems import Refused

from .reading import doubts, texts, variables

HEAD = '<?xml version="1.0" encoding="UTF-8"?>\n'


def read(body: str, **files: str) -> list[Found]:
    text = f'{HEAD}<plist version="1.0">\n<dict>\n{body}</dict>\n</plist>\n'
    return launchd.read(text.encode(), "llm.plist", files=files.get)


def only(body: str, **files: str) -> Found:
    (found,) = read(body, **files)
    return found


MLX = """<key>Label</key><string>org.example.mlx</string>
<!-- the model of the team -->
<key>ProgramArguments</key>
<array>
  <string>/usr/bin/python3</string><string>-m</string>
  <string>mlx_lm.server</string>
  <!-- not <string>--port</string> -->
  <string>--model</string> <string>/srv/m</string>
  <string>--chat-template-args</string>
  <string>{"enable_thinking": false}</string>
  <string>--prompt-cache-bytes</string> <string>2147483648</string>
  <string>--port</string>
  <string>8000</string>
</array>
<key>ThrottleInterval</key><integer>30</integer>
"""


def test_arguments_keep_their_position_and_their_bytes() -> None:
    found = only(MLX)
    assert found.program == "mlx_lm.server"
    assert found.name == "org.example.mlx"
    assert texts(found) == [
        *("--model", "/srv/m", "--chat-template-args", '{"enable_thinking": false}'),
        *("--prompt-cache-bytes", "2147483648", "--port", "8000"),
    ]
    assert doubts(found.words) == {}
    assert [word.place.line for word in found.words] == [
        *(11, 11, 12, 13, 14, 14, 15, 16),
    ]
    assert str(found.words[0].place) == "llm.plist:11: ProgramArguments"


def test_environment_has_the_line_of_its_value() -> None:
    found = only(
        "<key>EnvironmentVariables</key><dict><key>A</key><string>1</string>\n"
        "<key>LLAMA_ARG_PORT</key>\n<string>9000</string></dict>\n"
        "<key>WorkingDirectory</key><string>/srv/llm</string>\n"
        "<key>ProgramArguments</key><array><string>llama-server</string>"
        "<string>-c</string><string>$A</string></array>\n"
    )
    assert variables(found) == {"A": "1", "LLAMA_ARG_PORT": "9000"}
    assert [v.place.line for v in found.environment] == [4, 6]
    assert texts(found) == ["-c", "$A"]
    assert found.folder == "/srv/llm"


def test_program_counts_more_than_the_first_argument() -> None:
    found = only(
        "<key>Program</key><string>/opt/llama-server</string>\n"
        "<key>ProgramArguments</key><array><string>shown</string>"
        "<string>-np</string><string>1</string></array>\n"
    )
    assert found.command == ("/opt/llama-server",)
    assert texts(found) == ["-np", "1"]


def test_a_number_among_the_arguments_is_in_doubt() -> None:
    found = only(
        "<key>ProgramArguments</key><array><string>llama-server</string>"
        "<string>-np</string><integer>2</integer></array>\n"
    )
    assert doubts(found.words) == {"2": "launchd takes only `<string>` as an argument"}


def test_a_script_of_a_job_is_followed() -> None:
    body = (
        "<key>EnvironmentVariables</key><dict><key>NP</key><string>5</string></dict>\n"
        "<key>ProgramArguments</key><array><string>/srv/run.sh</string></array>\n"
    )
    found = only(body, **{"/srv/run.sh": "#!/bin/zsh\nexec llama-server -np $NP\n"})
    assert texts(found) == ["-np", "5"]
    assert found.files == ("llm.plist", "/srv/run.sh")


def test_binary_property_lists_are_read_without_lines() -> None:
    job = {"Label": "a", "ProgramArguments": ["llama-server", "-np", "2"]}
    data = plistlib.dumps(job, fmt=plistlib.FMT_BINARY)
    (found,) = launchd.read(data, "llm.plist")
    assert texts(found) == ["-np", "2"]
    assert str(found.words[0].place) == "llm.plist: ProgramArguments"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (
            f"\n{HEAD}<plist><dict/></plist>",
            "llm.plist:2: no valid XML: XML or text declaration not at start of "
            "entity\n  hint: the `<?xml` line has to be the first one",
        ),
        (
            f"{HEAD}<plist><dict>\n<key>P</key><string>/Users/<USER>/m</string>\n"
            "</dict></plist>",
            "llm.plist:3: no valid XML: mismatched tag",
        ),
        (f"{HEAD}<plist><array/></plist>", "llm.plist: found no dictionary"),
        (f"{HEAD}<plist><dict/></plist>", "llm.plist: there is no `ProgramArguments`"),
        ("bplist00broken", "llm.plist: no property list"),
    ],
)
def test_a_broken_file_gives_one_clear_problem(data: str, message: str) -> None:
    with pytest.raises(Refused) as error:
        launchd.read(data.encode(), "llm.plist")
    (problem,) = error.value.problems
    assert problem.render().startswith(message)


def test_another_job_is_no_server() -> None:
    assert read("<key>Program</key><string>/usr/bin/true</string>\n") == []
