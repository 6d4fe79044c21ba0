"""Comments of a TOML text are found where strings hold `#` too."""

from __future__ import annotations

import pytest

from mlxceld.migrate.comments import comments, lost


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a = 1 # one\n# two  \n", ["# one", "# two"]),
        ('a = "# no" # yes', ["# yes"]),
        ("a = '# no' # yes", ["# yes"]),
        ('a = "\\"# no" # yes', ["# yes"]),
        ("a = 'C:\\' # yes", ["# yes"]),
        ('a = """# no\n"# no"\n""" # yes', ["# yes"]),
        ('a = """# no\\""" # no""""" # yes', ["# yes"]),
        ("a = '''# no\n''# no''''' # yes", ["# yes"]),
        ('a = "" # yes', ["# yes"]),
        ('a = """""" # yes', ["# yes"]),
        ('a = [ # one\n "#no", # two\n] # three', ["# one", "# two", "# three"]),
        ('"a#b" = 1', []),
        ("a = 1 # it's\nb = 'x' # it's", ["# it's", "# it's"]),
    ],
)
def test_a_comment_ends_its_line(text: str, expected: list[str]) -> None:
    assert [comment.text for comment in comments(text)] == expected


def test_a_comment_knows_its_line() -> None:
    assert [c.line for c in comments("# a\n\nb = '''\n#\n''' # c\n")] == [1, 5]


def test_two_comments_that_are_alike_are_two() -> None:
    assert [c.line for c in lost("# x\n# x\n", "# x\n")] == [2]
    assert lost("# x\n", "\n# y\n  # x") == []


def test_a_file_of_many_comments_takes_no_longer_for_each_of_them() -> None:
    text = "# c\n" * 100_000
    assert comments(text)[-1].line == 100_000
