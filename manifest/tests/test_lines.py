"""Finding the line of a TOML value, in every form that TOML allows for it."""

import pytest

from tileops.manifest._toml import tomllib
from tileops.manifest.lines import Lines

TEXT = '''\
# [signature] in a comment
name = "x" # = 1
"quoted key" = 1
[signature.dims]
"*B" = "a [bracket] and a = sign"
[signature]
dtypes.T = ["float16",
  "[[not a table]]",
]
text = """
[inputs]
name = 3
"""
literal = \'\'\'
[more]
\'\'\'
[[signature.inputs]]
name = "x"
[[signature.inputs]]
name = "y"
shape = [
  "a", # ]
  "b",
]
  indented = { a = [1, 2] }
[signature.inputs.deep]
key = 1
[last]
end = true'''

PLACES = [
    (("name",), 2),
    (("quoted key",), 3),
    (("signature", "dims"), 4),
    (("signature", "dims", "*B"), 5),
    (("signature", "dtypes", "T", 1), 7),
    (("signature", "text"), 10),
    (("signature", "literal"), 14),
    (("signature", "inputs"), 17),
    (("signature", "inputs", 0), 17),
    (("signature", "inputs", 0, "name"), 18),
    (("signature", "inputs", 1), 19),
    (("signature", "inputs", 1, "shape", 1), 21),
    (("signature", "inputs", 1, "indented", "a"), 25),
    (("signature", "inputs", 1, "deep", "key"), 27),
    (("last", "end"), 29),
    (("signature", "inputs", 1, "missing"), 19),
    (("missing",), 1),
]


def test_the_text_is_toml() -> None:
    assert tomllib.loads(TEXT)["signature"]["inputs"][1]["deep"] == {"key": 1}


@pytest.mark.parametrize(("path", "line"), PLACES)
def test_a_value_stands_at_its_statement_or_its_nearest_parent(
    path: tuple[str | int, ...], line: int
) -> None:
    assert Lines(TEXT).of(*path) == line
