"""Level 2: workloads that are no valid call."""

from __future__ import annotations

from collections.abc import Callable

import pytest

CASES = {
    "outside its rules": (
        [
            ("N = 8 }", "N = 0 }"),
        ],
        [
            "norm/scale_fwd.toml:41: the workload 'small' meets the rules; found one that "
            "fails 'N > 0': there are 0 columns; there is at least 1; mend the workload or "
            "the rule",
        ],
    ),
    "names that are none": (
        [
            ("params = { eps = 1e-5 }", "params = { epps = 1e-5 }"),
            ('present = ["weight"]', 'present = ["wieght"]'),
        ],
        [
            "norm/scale_fwd.toml:45: workloads[0].params names a param; found 'epps'; did "
            "you mean 'eps'?",
            "norm/scale_fwd.toml:48: workloads[0].present names an optional input; found "
            "'wieght'; did you mean 'weight'?",
        ],
    ),
    "a dim that is missing and one too many": (
        [
            ("dims = { B = [2, 3], N = 8 }", "dims = { B = [2, 3], M = 8 }"),
        ],
        [
            "norm/scale_fwd.toml:41: a workload gives the size of N; found none; add it to dims",
            "norm/scale_fwd.toml:46: workloads[0].dims names a dim of the tensors passed; "
            "found 'M'; write one of B, N",
        ],
    ),
    "a size where there are several": (
        [
            ("dims = { B = [2, 3], N = 8 }", "dims = { B = 6, N = [8] }"),
        ],
        [
            "norm/scale_fwd.toml:46: B is an array of sizes; found 6; write an array of sizes",
            "norm/scale_fwd.toml:46: N is a size; found (8,); write a size",
        ],
    ),
    "a rank of an input that has one shape": (
        [
            ('present = ["weight"]', 'present = ["weight"]\nranks = { weight = 1 }'),
        ],
        [
            "norm/scale_fwd.toml:49: workloads[0].ranks names an input with alternative shapes; "
            "found 'weight'; remove it",
        ],
    ),
    "a scale of what is not drawn, and one that is none": (
        [
            ('present = ["weight"]', 'present = ["weight"]\nscales = { wieght = 0.5, x = 0 }'),
        ],
        [
            "norm/scale_fwd.toml:49: workloads[0].scales names a floating input that is drawn at "
            "random; found 'wieght'; did you mean 'weight'?",
            "norm/scale_fwd.toml:49: a scale is above 0; found 0.0; write a number above 0",
        ],
    ),
    "a rank that no alternative has": (
        [
            ('shape = ["N"]\noptional = true', 'shapes = [["N"], [1, "N"]]\noptional = true'),
            ('present = ["weight"]', 'present = ["weight"]\nranks = { weight = 3 }'),
        ],
        [
            "norm/scale_fwd.toml:49: weight has 1 or 2 axes; found 3; write 1 or 2",
        ],
    ),
    "a dtype that is not taken": (
        [
            ('dtypes = { T = "float16" }', 'dtypes = { T = "float64" }'),
        ],
        [
            "norm/scale_fwd.toml:47: T ranges over float16, float32; found 'float64'; did "
            "you mean 'float16'?",
        ],
    ),
    "a dtype that is missing": (
        [
            ('dtypes = { T = "float16" }\n', ""),
        ],
        [
            "norm/scale_fwd.toml:41: a workload gives the dtype of T; found none; add it to dtypes",
        ],
    ),
    "dtypes outside the combinations": (
        [
            (
                "[[signature.params]]",
                '[[signature.dtype_combinations]]\nT = "float32"\n\n[[signature.params]]',
            ),
        ],
        [
            "norm/scale_fwd.toml:50: a workload's dtypes are one of the combinations; "
            "found T = float16; take a listed one",
        ],
    ),
    "a param of the wrong type": (
        [
            ("params = { eps = 1e-5 }", 'params = { eps = "small" }'),
        ],
        [
            "norm/scale_fwd.toml:45: eps is a float or None; found 'small'; change it",
        ],
    ),
    "a param that is missing": (
        [
            ('type = "float"\noptional = true', 'type = "float"'),
            ("params = { eps = 1e-5 }\n", ""),
        ],
        [
            "norm/scale_fwd.toml:40: a workload gives the param eps; found none; add it to params",
        ],
    ),
    "an input that this call must pass": (
        [
            ('type = "float"\noptional = true', 'type = "bool"\ndefault = false'),
            ("params = { eps = 1e-5 }\n", ""),
            (
                "optional = true\n\n[[signature.outputs",
                'optional = "eps"\n\n[[signature.outputs',
            ),
            ('present = ["weight"]\n', ""),
        ],
        [
            "norm/scale_fwd.toml:41: weight may be left out only where eps; found the "
            "workload 'small' without it; add it to present",
        ],
    ),
    "a label twice": (
        [
            (
                "[roofline]",
                "[[workloads]]\n"
                'label = "small"\n'
                'model = "a model"\n'
                'phase = "decode"\n'
                "dims = { B = [], N = 8 }\n"
                'dtypes = { T = "float16" }\n'
                "\n"
                "[roofline]",
            ),
        ],
        [
            "norm/scale_fwd.toml:51: labels differ; found 'small' twice; rename one",
        ],
    ),
    "an integer input without a generator": (
        [
            (
                'dtype = "T"\nshape = ["N"]\noptional = true',
                'dtype = "int32"\nshape = ["N"]\noptional = true',
            ),
        ],
        [
            "norm/scale_fwd.toml:41: a workload says how weight is made, which carries "
            "values; found no generator; add generators.weight = { kind = … }",
        ],
    ),
    "a generator that lacks an argument": (
        [
            (
                'dtype = "T"\nshape = ["N"]\noptional = true',
                'dtype = "int32"\nshape = ["N"]\noptional = true',
            ),
            (
                'present = ["weight"]',
                'present = ["weight"]\ngenerators.weight = { kind = "slots" }',
            ),
        ],
        [
            "norm/scale_fwd.toml:49: workloads[0].generators.weight makes the values of the "
            "call; found slots needs below; mend the generator or the dims",
        ],
    ),
    "a generator that does not take an argument": (
        [
            (
                'dtype = "T"\nshape = ["N"]\noptional = true',
                'dtype = "int32"\nshape = ["N"]\noptional = true',
            ),
            (
                'present = ["weight"]',
                'present = ["weight"]\n'
                'generators.weight = { kind = "constant", value = 1, each = 2 }',
            ),
        ],
        [
            "norm/scale_fwd.toml:49: workloads[0].generators.weight makes the values of the "
            "call; found constant takes no each; mend the generator or the dims",
        ],
    ),
    "a generator of a misspelt kind": (
        [
            (
                'dtype = "T"\nshape = ["N"]\noptional = true',
                'dtype = "int32"\nshape = ["N"]\noptional = true',
            ),
            (
                'present = ["weight"]',
                'present = ["weight"]\ngenerators.weight = { kind = "slot", below = 9 }',
            ),
        ],
        [
            "norm/scale_fwd.toml:49: workloads[0].generators.weight.kind is the kind of a "
            "generator; found 'slot'; did you mean 'slots'?",
        ],
    ),
    "too few different numbers": (
        [
            (
                'dtype = "T"\nshape = ["N"]\noptional = true',
                'dtype = "int32"\nshape = ["N"]\noptional = true',
            ),
            (
                'present = ["weight"]',
                'present = ["weight"]\ngenerators.weight = { kind = "slots", below = 7 }',
            ),
        ],
        [
            "norm/scale_fwd.toml:49: workloads[0].generators.weight makes the values of the "
            "call; found 8 different numbers are not below 7; mend the generator or the dims",
        ],
    ),
    "lengths that do not fill their dim": (
        [
            (
                'dtype = "T"\nshape = ["N"]\noptional = true',
                'dtype = "int32"\nshape = ["N"]\noptional = true',
            ),
            (
                'present = ["weight"]',
                'present = ["weight"]\n'
                'generators.weight = { kind = "lengths", each = 3, total = "N" }',
            ),
        ],
        [
            "norm/scale_fwd.toml:49: workloads[0].generators.weight makes the values of the "
            "call; found the lengths sum to 24, and N is 8; mend the generator or the dims",
        ],
    ),
    "a generator of a tensor that is not passed": (
        [
            (
                "dims = {",
                'generators.weight = { kind = "constant", value = 1 }\ndims = {',
            ),
            ('present = ["weight"]\n', ""),
        ],
        [
            "norm/scale_fwd.toml:46: workloads[0].generators names an input that "
            "is passed; found 'weight'; write one of x",
        ],
    ),
    "negative work": (
        [
            ('flops = "prod(B) * N"', 'flops = "N - 9"'),
        ],
        [
            "norm/scale_fwd.toml:50: flops and bytes of the workload 'small' are at least "
            "0; found -1 and 208; mend the roofline",
        ],
    ),
    "an index out of a shape": (
        [
            ('require = "N > 0"', 'require = "B[2] > 0"'),
        ],
        [
            "norm/scale_fwd.toml:41: the workload 'small' can be evaluated; found "
            "IndexError: tuple index out of range; add a rule before the one that fails, "
            "or change the workload",
        ],
    ),
    "work by values that there are not": (
        [
            ('flops = "prod(B) * N"', 'flops = "sum(values(x))"'),
        ],
        [
            "norm/scale_fwd.toml:41: the workload 'small' can be evaluated; found "
            "ValueError: the tensor has no values here: the workload names no generator "
            "for it; add a rule before the one that fails, or change the workload",
        ],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_the_workload_is_refused(name: str, faults_of: Callable[..., list[str]]) -> None:
    changes, expected = CASES[name]
    assert faults_of(*changes) == expected
