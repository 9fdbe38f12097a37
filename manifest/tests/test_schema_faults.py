"""Level 1: what the schema refuses, and how that is told."""

from __future__ import annotations

from collections.abc import Callable

import pytest

CASES = {
    "numbers that JSON and 64 bits do not hold": (
        [
            ('type = "float"\noptional = true', 'type = "float"\ndefault = inf'),
            ("eps = 1e-5", "eps = nan"),
            ("N = 8", "N = 99999999999999999999"),
        ],
        [
            "norm/scale_fwd.toml:19: signature.params[0].default is a default: a string, number, "
            "bool or array of numbers; found inf; write a finite number of 64 bits",
            "norm/scale_fwd.toml:45: workloads[0].params.eps is a string, number, bool or array "
            "of numbers; found nan; write a finite number of 64 bits",
            "norm/scale_fwd.toml:46: workloads[0].dims.N is a size, or an array of sizes; found "
            "99999999999999999999; write a finite number of 64 bits",
        ],
    ),
    "an unknown key": (
        [
            ('status = "planned"', 'status = "planned"\ncolour = "red"'),
        ],
        [
            "norm/scale_fwd.toml:4: the entry takes only its own keys; found 'colour'; its "
            "keys are name, family, snake, status, since, summary, formula, reference, "
            "accumulation_dtype, signature, composition, workloads, roofline, tolerances",
        ],
    ),
    "a misspelt key, at its line, and what it leaves missing": (
        [
            ("summary =", "sumary ="),
        ],
        [
            "norm/scale_fwd.toml:1: the entry needs `summary`; add summary, one sentence "
            "that says what the op does",
            "norm/scale_fwd.toml:5: the entry takes only its own keys; found 'sumary'; did "
            "you mean 'summary'?",
        ],
    ),
    "a misspelt key of a table": (
        [
            ("optional = true\n\n[[signature.inputs", "optinal = true\n\n[[signature.inputs"),
        ],
        [
            "norm/scale_fwd.toml:19: signature.params[0] takes only its own keys; found "
            "'optinal'; did you mean 'optional'?",
        ],
    ),
    "a misspelt value": (
        [
            ('status = "planned"', 'status = "implementd"'),
        ],
        [
            "norm/scale_fwd.toml:3: status is `planned` or `implemented`; found "
            "'implementd'; did you mean 'implemented'?",
        ],
    ),
    "values of the wrong type": (
        [
            ('type = "float"', 'type = "flaot"'),
            ('label = "small"', "label = 3"),
            ("dims = { B = [2, 3], N = 8 }", 'dims = { B = [2, -3], N = "8" }'),
        ],
        [
            "norm/scale_fwd.toml:18: signature.params[0].type is the kind of a param; "
            "found 'flaot'; did you mean 'float'?",
            "norm/scale_fwd.toml:42: workloads[0].label is a label: small letters, digits, "
            "dots and dashes; found 3; write a string",
            "norm/scale_fwd.toml:46: workloads[0].dims.B[1] is a size; found -3; write at least 0",
            "norm/scale_fwd.toml:46: workloads[0].dims.N is a size, or an array of sizes; "
            "found '8'; write an int or an array",
        ],
    ),
    "a version that is none": (
        [
            ('since = "0.1.0"', 'since = "0.1"'),
        ],
        [
            "norm/scale_fwd.toml:4: since is the version of the manifest that first had "
            "the entry; found '0.1'; write it like '0.1.0'",
        ],
    ),
    "a name that is none": (
        [
            ('name = "eps"', 'name = "my-eps"'),
        ],
        [
            "norm/scale_fwd.toml:17: signature.params[0].name is a name: a letter, then "
            "letters, digits and underscores; found 'my-eps'; write it like 'hidden_size'",
        ],
    ),
    "a shape twice": (
        [
            ('shape = ["N"]\n', 'shape = ["N"]\nshapes = [["N"], ["*B", "N"]]\n'),
        ],
        [
            "norm/scale_fwd.toml:26: signature.inputs[1]: an input has `shape`, or "
            "`shapes` with the alternatives; write one of the two",
        ],
    ),
    "a choice twice": (
        [
            ('type = "float"', 'type = "str"\nchoices = ["a", "a"]'),
        ],
        [
            "norm/scale_fwd.toml:19: signature.params[0].choices is an array of the values "
            "that the param may have; found ['a', 'a']; leave out what stands there twice",
        ],
    ),
    "an empty text": (
        [
            ('summary = "Scales each column."', 'summary = ""'),
        ],
        [
            "norm/scale_fwd.toml:5: summary is one sentence that says what the op does; "
            "found ''; write what it says",
        ],
    ),
    "a buffer that is not `out`": (
        [
            (
                'shape = ["*B", "N"]\n\n[[signature.rules',
                'shape = ["*B", "N"]\nbuffer = "in"\n\n[[signature.rules',
            ),
        ],
        [
            'norm/scale_fwd.toml:36: signature.outputs[0].buffer is "out": the caller may '
            "pass the tensor that is filled; found 'in'; write 'out'",
        ],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_the_schema_refuses(name: str, faults_of: Callable[..., list[str]]) -> None:
    changes, expected = CASES[name]
    assert faults_of(*changes) == expected
