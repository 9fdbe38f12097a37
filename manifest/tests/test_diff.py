"""What a change of an entry means for those who call the op."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tileops.manifest import Entry, load_text
from tileops.manifest.diff import Level, compare, compare_entries, required_version

Make = Callable[..., str]
Changes = list[tuple[str, str]]

DONE = ('status = "planned"', 'status = "implemented"')
X = ('shape = ["*B", "N"]\n\n[[signature.inputs', 'shape = ["*B", "N"]\n%s\n\n[[signature.inputs')
Y = ('shape = ["*B", "N"]\n\n[[signature.rules', 'shape = ["*B", "N"]\n%s\n\n[[signature.rules')
SIZE = '[[signature.params]]\nname = "size"\ntype = "int"\n%s\n\n'
TOLERANCE = '[[tolerances]]\noutput = "y"\ndtype = "float16"\nrtol = %s\natol = 0\nreason = "r"\n\n'


def extra(place: str, text: str) -> tuple[str, str]:
    return place, f"{text}{place}"


def filled(change: tuple[str, str], text: str) -> tuple[str, str]:
    return change[0], change[1] % text


INPUTS = "[[signature.inputs]]"
OUTPUTS = "[[signature.outputs]]"
BIAS = '[[signature.inputs]]\nname = "bias"\ndtype = "T"\nshape = ["N"]\n%s\n\n'

CASES: dict[str, tuple[Changes, list[str]]] = {
    "nothing": ([], []),
    "words": (
        [("Scales each column.", "Scales columns."), ("torch.mul", "torch.multiply")],
        ["neutral: summary is worded differently", "neutral: reference is worded differently"],
    ),
    "a workload": ([("N = 8 }", "N = 16 }")], ["neutral: workloads changed"]),
    "a roofline": ([('"prod(B) * N"', '"2 * prod(B) * N"')], ["neutral: roofline changed"]),
    "a renamed dim": (
        [
            ('N = "columns"', 'C = "columns"'),
            ('shape = ["*B", "N"]', 'shape = ["*B", "C"]'),
            ('shape = ["N"]', 'shape = ["C"]'),
            ('shape = ["*B", "N"]', 'shape = ["*B", "C"]'),
            ('"N > 0"', '"C > 0"'),
            ("{N}", "{C}"),
        ],
        [
            "neutral: the rule 'C > 0' has another message",
            "neutral: dims are named or described differently",
        ],
    ),
    "a renamed input": (
        [('name = "x"', 'name = "input"')],
        [
            "breaking: the input x is gone",
            "breaking: the input input is new and must be passed",
        ],
    ),
    "a further axis of the input that has the dims first": (
        [
            ('N = "columns"', 'N = "columns"\nG = "groups"'),
            (
                'name = "x"\ndtype = "T"\nshape = ["*B", "N"]',
                'name = "x"\ndtype = "T"\nshape = ["*B", "G", "N"]',
            ),
        ],
        [
            "breaking: the input x of shape [*B, N] is of shape [*B, G, N]",
            "neutral: dims are named or described differently",
        ],
    ),
    "a renamed dtype variable": (
        [("T = [", "A = ["), ('dtype = "T"', 'dtype = "A"')] + [('dtype = "T"', 'dtype = "A"')] * 2,
        [],
    ),
    "a further dtype": (
        [('["float16", "float32"]', '["float16", "bfloat16", "float32"]')],
        ["additive: the dtypes x bfloat16, weight bfloat16 are taken"],
    ),
    "a dtype less": (
        [('["float16", "float32"]', '["float16"]')],
        ["breaking: the dtypes x float32, weight float32 are not taken any more"],
    ),
    "combinations instead of all": (
        [
            ('T = ["float16", "float32"]', 'T = ["float16", "float32"]\nW = ["float32"]'),
            ('dtype = "T"\nshape = ["N"]', 'dtype = "W"\nshape = ["N"]'),
        ],
        [
            "breaking: the dtypes x float16, weight float16 are not taken any more",
            "additive: the dtypes x float16, weight float32 are taken",
        ],
    ),
    "another result dtype": (
        [('name = "y"\ndtype = "T"', 'name = "y"\ndtype = "float32"')],
        ["breaking: the results y float16 are y float32 for x float16, weight float16"],
    ),
    "a new param with a default": (
        [extra(INPUTS, SIZE % "default = 1")],
        ["additive: the param size is new"],
    ),
    "a new param without one": (
        [extra(INPUTS, SIZE % "keyword_only = true")],
        ["breaking: the param size is new and must be passed"],
    ),
    "a new param before others": (
        [extra("[[signature.params]]", SIZE % "default = 1")],
        ["breaking: the param size is new before others passed by place"],
    ),
    "a param less": (
        [('[[signature.params]]\nname = "eps"\ntype = "float"\noptional = true\n\n', "")],
        ["breaking: the param eps is gone"],
    ),
    "a param that may not be None": (
        [('type = "float"\noptional = true', 'type = "float"\ndefault = 1e-5')],
        [
            "breaking: the param eps may not be None any more",
            "breaking: the param eps has the default 1e-05 instead of None",
        ],
    ),
    "a param of a wider type": (
        [('type = "float"\noptional = true', 'type = "shape"\noptional = true')],
        ["breaking: the param eps of type float is of type shape"],
    ),
    "a param by name only": (
        [("optional = true\n\n[[sig", "optional = true\nkeyword_only = true\n\n[[sig")],
        ["breaking: the param eps is passed by name only"],
    ),
    "limited choices": (
        [
            (
                'type = "float"\noptional = true',
                'type = "str"\noptional = true\nchoices = ["a", "b"]',
            )
        ],
        [
            "breaking: the param eps of type float is of type str",
            "breaking: choices of the param eps are limited to a, b",
        ],
    ),
    "a new optional input": (
        [extra(OUTPUTS, BIAS % "optional = true")],
        ["additive: the input bias is new"],
    ),
    "a new input that is required": (
        [("optional = true\n\n[[signature.outputs]]", "\n" + BIAS % "" + OUTPUTS)],
        [
            "breaking: the input weight had optional = true and has false",
            "breaking: the input bias is new and must be passed",
        ],
    ),
    "an input less": (
        [
            (
                '[[signature.inputs]]\nname = "weight"\ndtype = "T"\nshape = ["N"]\n'
                "optional = true\n\n",
                "",
            )
        ],
        ["breaking: the input weight is gone"],
    ),
    "an input that is written": (
        [filled(X, "mutated = true")],
        ["breaking: the input x had mutated = false and has true"],
    ),
    "a further shape": (
        [('shape = ["N"]', 'shapes = [["N"], ["*B", "N"]]')],
        ["additive: the input weight of shape [N] may be of shape [N] or [*B, N]"],
    ),
    "another shape": (
        [('shape = ["N"]', "shape = [1]")],
        ["breaking: the input weight of shape [N] is of shape [1]"],
    ),
    "a buffer": ([filled(Y, 'buffer = "out"')], ["additive: the output y may fill `out`"]),
    "a further output": (
        [
            extra(
                "[[signature.rules]]",
                '[[signature.outputs]]\nname = "s"\ndtype = "T"\nshape = []\n\n',
            )
        ],
        ["breaking: the outputs y are y, s"],
    ),
    "an output under a condition": (
        [filled(Y, 'when = "weight is not None"')],
        ["breaking: the output y had when None and has weight is not None"],
    ),
    "a further rule": (
        [extra("[[workloads]]", '[[signature.rules]]\nrequire = "N > 7"\nmessage = "m"\n\n')],
        ["breaking: the rule 'N > 7' is new"],
    ),
    "a rule less": (
        [
            (
                '[[signature.rules]]\nrequire = "N > 0"\n'
                'message = "there are {N} columns; there is at least 1"\n\n',
                "",
            )
        ],
        ["additive: the rule 'N > 0' is gone"],
    ),
    "another operator name": (
        [('family = "norm"', 'family = "scale"')],
        ["breaking: family 'norm' became 'scale'"],
    ),
    "planned again": (
        [('status = "implemented"', 'status = "planned"')],
        ["breaking: was implemented and is planned"],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_changes(name: str, entry_text: Make) -> None:
    changes, expected = CASES[name]
    old = load_text(entry_text(DONE))
    new = load_text(entry_text(DONE, *changes))
    found = compare_entries(old, new)
    assert [f"{change.level}: {change.text}" for change in found] == expected


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("0.1", "0.01", ["neutral: the tolerance of y in float16 is tighter"]),
        ("0.01", "0.1", ["breaking: the tolerance of y in float16 is looser"]),
        ("0.1", None, ["breaking: the tolerance of y in float16 is gone"]),
        (None, "0.1", ["neutral: the tolerance of y in float16 is new"]),
    ],
)
def test_tolerances(
    old: str | None, new: str | None, expected: list[str], entry_text: Make
) -> None:
    """A result that may lie farther from the formula can fail somebody's test."""

    def entry(rtol: str | None) -> Entry:
        more = extra("[roofline]", TOLERANCE % rtol) if rtol else ("[roofline]", "[roofline]")
        return load_text(entry_text(DONE, more))

    found = compare_entries(entry(old), entry(new))
    assert [f"{change.level}: {change.text}" for change in found] == expected


def test_what_is_gone_is_told_in_the_order_of_the_entry(entry_text: Make) -> None:
    names = ["zeta", "alpha", "mu", "beta", "omega"]
    rows = "".join(SIZE.replace("size", name) % "default = 1" for name in names)
    old, new = load_text(entry_text(DONE, extra(INPUTS, rows))), load_text(entry_text(DONE))
    assert [change.text for change in compare_entries(old, new)] == [
        f"the param {name} is gone" for name in names
    ]


def test_very_many_dtypes_are_compared_tensor_by_tensor(entry_text: Make) -> None:
    def entry(last: str, *dtypes: str) -> Entry:
        listed = str(["float16", "bfloat16", "float32", "float64", "int8", "int16"])
        variables = "".join(f"D{at} = {listed}\n" for at in range(9))
        variables += f"D9 = {list(dtypes)}\n"
        inputs = "".join(
            (BIAS % "optional = true").replace("bias", f"i{at}").replace('"T"', f'"{dtype}"')
            for at, dtype in enumerate([*(f"D{at}" for at in range(9)), last, "D9"])
        )
        place = 'T = ["float16", "float32"]\n'
        return load_text(entry_text(DONE, (place, place + variables), extra(OUTPUTS, inputs)))

    old = entry("D9", "float16", "int8")
    assert compare_entries(old, old) == []
    found = compare_entries(old, entry("D9", "float16", "int16"))
    assert [f"{change.level}: {change.text}" for change in found] == [
        "breaking: the dtypes int8 of i9 are gone",
        "breaking: the dtypes int8 of i10 are gone",
        "additive: the dtypes int16 of i9 are new",
        "additive: the dtypes int16 of i10 are new",
    ]
    found = compare_entries(old, entry("D0", "float16", "int8"))
    assert [f"{change.level}: {change.text}" for change in found] == [
        "breaking: the dtypes that go together are others",
        "additive: the dtypes bfloat16, float32, float64, int16 of i9 are new",
    ]


def test_a_planned_op_breaks_no_one(entry_text: Make) -> None:
    old = load_text(entry_text())
    changed = filled(X, "mutated = true")
    assert [str(change) for change in compare_entries(old, load_text(entry_text(changed)))] == [
        "ScaleFwdOp: neutral: the input x had mutated = false and has true"
    ]
    done = load_text(entry_text(DONE, changed))
    assert [str(change) for change in compare_entries(old, done)] == [
        "ScaleFwdOp: additive: is implemented",
        "ScaleFwdOp: neutral: the input x had mutated = false and has true",
    ]


def test_new_and_gone(entry_text: Make) -> None:
    planned, done = load_text(entry_text()), load_text(entry_text(DONE))
    difference = compare({"A": planned, "B": done}, {"C": planned, "D": done})
    assert [str(change) for change in difference.changes] == [
        "A: neutral: is gone (planned)",
        "B: breaking: is gone (implemented)",
        "C: neutral: is new (planned)",
        "D: additive: is new (implemented)",
    ]
    assert difference.level is Level.BREAKING
    assert compare({}, {}).level is None


@pytest.mark.parametrize(
    ("old", "level", "version", "part"),
    [
        ("0.1.2", None, (0, 1, 2), "none"),
        ("0.1.2", Level.NEUTRAL, (0, 1, 3), "patch"),
        ("0.1.2", Level.ADDITIVE, (0, 1, 3), "patch"),
        ("0.1.2", Level.BREAKING, (0, 2, 0), "minor"),
        ("1.2.3", Level.NEUTRAL, (1, 2, 4), "patch"),
        ("1.2.3", Level.ADDITIVE, (1, 3, 0), "minor"),
        ("1.2.3", Level.BREAKING, (2, 0, 0), "major"),
    ],
)
def test_the_version_that_must_follow(
    old: str, level: Level | None, version: tuple[int, int, int], part: str
) -> None:
    assert required_version(old, level) == (version, part)
