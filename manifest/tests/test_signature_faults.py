"""Level 2: names, shapes, dtypes, params, rules and tolerances that contradict each other."""

from __future__ import annotations

from collections.abc import Callable

import pytest

CASES = {
    "a dim that is not declared": (
        [
            ('shape = ["N"]\n', 'shape = ["M"]\n'),
        ],
        [
            "norm/scale_fwd.toml:29: signature.inputs[1].shape[0]: 'M' is not known here; "
            "found 'M'; the names here are B, N, eps, weight, x; declare others",
        ],
    ),
    "a variadic that is not declared": (
        [
            ('shape = ["N"]\n', 'shape = ["*C"]\n'),
        ],
        [
            "norm/scale_fwd.toml:29: signature.inputs[1].shape[0]: a starred name is a "
            "variadic dim or a shape param; found '*C'; declare it in signature.dims",
        ],
    ),
    "a dim that nothing binds": (
        [
            ('N = "columns"', 'N = "columns"\nM = "more"'),
        ],
        [
            "norm/scale_fwd.toml:12: a dim is an axis of an input, in each of its "
            "alternatives, as a bare name; found 'M' is of none; use it, remove it, or "
            "make it a param",
        ],
    ),
    "a dim that is bound only by an expression": (
        [
            ('N = "columns"', 'N = "columns"\nM = "more"'),
            ('shape = ["N"]\n', 'shape = ["M + 1"]\n'),
        ],
        [
            "norm/scale_fwd.toml:12: a dim is an axis of an input, in each of its "
            "alternatives, as a bare name; found 'M' is of none; use it, remove it, or "
            "make it a param",
        ],
    ),
    "two variadics at one input": (
        [
            ('N = "columns"', 'N = "columns"\n"*C" = "more"'),
            (
                'shape = ["*B", "N"]\n\n[[signature.inputs',
                'shape = ["*B", "*C", "N"]\n\n[[signature.inputs',
            ),
        ],
        [
            "norm/scale_fwd.toml:25: signature.inputs[0].shape has at most one variadic "
            "dim that earlier inputs do not bind; found '*B', '*C'; bind the others at an "
            "earlier input",
        ],
    ),
    "a size that only an optional input binds": (
        [
            ('N = "columns"', 'N = "columns"\nM = "more"'),
            ('shape = ["N"]\n', 'shape = ["M"]\n'),
            (
                'shape = ["*B", "N"]\n\n[[signature.rules',
                'shape = ["*B", "M"]\n\n[[signature.rules',
            ),
        ],
        [
            "norm/scale_fwd.toml:36: signature.outputs[0].shape[1] is known in every call; "
            "found 'M', which only weight binds; use a size that is always there",
        ],
    ),
    "a rule on such a size, not guarded": (
        [
            ('N = "columns"', 'N = "columns"\nM = "more"'),
            ('shape = ["N"]\n', 'shape = ["M"]\n'),
            ('require = "N > 0"', 'require = "M > 0"'),
        ],
        [
            "norm/scale_fwd.toml:39: signature.rules[0].require: 'M' may be None here; "
            "found 'M > 0'; ask for `weight is not None` to its left",
        ],
    ),
    "an optional param as a size": (
        [
            ('type = "float"', 'type = "int"'),
            ('shape = ["N"]\n', 'shape = ["eps"]\n'),
            ("params = { eps = 1e-5 }", "params = { eps = 1 }"),
        ],
        [
            "norm/scale_fwd.toml:29: signature.inputs[1].shape[0] is known in every call; "
            "found 'eps', which may be None; use a size that is always there",
        ],
    ),
    "alternatives of one rank": (
        [
            ('shape = ["N"]\n', 'shapes = [["N"], [8]]\n'),
        ],
        [
            "norm/scale_fwd.toml:29: signature.inputs[1].shapes have different ranks, one "
            "of them at most variadic; found ranks 1, 1; tell them apart by rank, or write "
            "two inputs",
        ],
    ),
    "a dtype variable that is not declared": (
        [
            ('dtype = "T"\nshape = ["N"]', 'dtype = "W"\nshape = ["N"]'),
        ],
        [
            "norm/scale_fwd.toml:28: signature.inputs[1].dtype is a dtype, a declared "
            "dtype variable or a dtype param; found 'W'; declare it in signature.dtypes",
        ],
    ),
    "a misspelt dtype": (
        [
            ('dtype = "T"\nshape = ["N"]', 'dtype = "float61"\nshape = ["N"]'),
        ],
        [
            "norm/scale_fwd.toml:28: signature.inputs[1].dtype is a dtype, a declared "
            "dtype variable or a dtype param; found 'float61'; did you mean 'float64'?",
        ],
    ),
    "a dtype variable that is not used": (
        [
            ('T = ["float16", "float32"]', 'T = ["float16", "float32"]\nW = ["float32"]'),
        ],
        [
            "norm/scale_fwd.toml:15: a dtype variable is the dtype of an input; found 'W' "
            "is of none; use it, or remove it",
        ],
    ),
    "a result's dtype that only an optional input has": (
        [
            ('T = ["float16", "float32"]', 'T = ["float16", "float32"]\nW = ["float32"]'),
            ('dtype = "T"\nshape = ["N"]', 'dtype = "W"\nshape = ["N"]'),
            ('name = "y"\ndtype = "T"', 'name = "y"\ndtype = "W"'),
        ],
        [
            "norm/scale_fwd.toml:35: the dtype of 'y' is known in every call; found 'W', "
            "which only optional inputs have; use the dtype of an input that is always "
            "there",
        ],
    ),
    "wrong combinations": (
        [
            (
                "[[signature.params]]",
                "[[signature.dtype_combinations]]\n"
                'T = "float64"\n'
                "\n"
                "[[signature.dtype_combinations]]\n"
                'U = "float16"\n'
                "\n"
                "[[signature.params]]",
            ),
        ],
        [
            "norm/scale_fwd.toml:17: T ranges over float16, float32; found 'float64'; did "
            "you mean 'float16'?",
            "norm/scale_fwd.toml:19: every dtype combination names the same variables; "
            "found U; name T",
            "norm/scale_fwd.toml:20: a combination names declared variables; found 'U'; "
            "declare it in signature.dtypes",
        ],
    ),
    "a name twice": (
        [
            ('name = "eps"', 'name = "N"'),
            ("params = { eps = 1e-5 }", "params = { N = 1e-5 }"),
        ],
        [
            "norm/scale_fwd.toml:11: dims, dtype variables, params, inputs, ints and "
            "outputs have different names; found 'N' 2 times; rename all but one",
            "norm/scale_fwd.toml:16: dims, dtype variables, params, inputs, ints and "
            "outputs have different names; found 'N' 2 times; rename all but one",
        ],
    ),
    "a reserved name": (
        [
            ('name = "eps"', 'name = "target"'),
        ],
        [
            "norm/scale_fwd.toml:16: signature.params[0]: a name is not one that the "
            "generated code or the language uses itself; found 'target'; choose another",
        ],
    ),
    "a Python keyword": (
        [
            ('name = "weight"', 'name = "lambda"'),
        ],
        [
            "norm/scale_fwd.toml:26: signature.inputs[1]: a name is not one that the "
            "generated code or the language uses itself; found 'lambda'; choose another",
        ],
    ),
    "a function's name": (
        [
            ('name = "weight"', 'name = "len"'),
        ],
        [
            "norm/scale_fwd.toml:26: signature.inputs[1]: a name is not one that the "
            "generated code or the language uses itself; found 'len'; choose another",
        ],
    ),
    "a dtype param without choices": (
        [
            ('type = "float"\noptional = true', 'type = "dtype"\ndefault = "float32"'),
        ],
        [
            "norm/scale_fwd.toml:16: the dtype param 'eps' lists the dtypes that it takes; "
            'found no choices; add choices = ["float32", …]',
        ],
    ),
    "choices of a float": (
        [
            ("optional = true\n\n[[signature.inputs", "choices = [1, 2]\n\n[[signature.inputs"),
        ],
        [
            "norm/scale_fwd.toml:19: choices are of params of the types str, int and "
            "dtype; found 'eps' of type 'float'; say it as a rule",
        ],
    ),
    "a default of the wrong type": (
        [
            ('type = "float"\noptional = true', 'type = "int"\ndefault = 1.5'),
        ],
        [
            "norm/scale_fwd.toml:19: signature.params[0].default: eps is an int; found "
            "1.5; change it, or the type",
        ],
    ),
    "a param without a default after one that has one": (
        [
            (
                "[[signature.inputs]]",
                '[[signature.params]]\nname = "size"\ntype = "int"\n\n[[signature.inputs]]',
            ),
        ],
        [
            "norm/scale_fwd.toml:21: a param without a default comes before those that "
            "have one; found 'size' after 'eps'; move it before, or make it keyword_only",
        ],
    ),
    "a required input after an optional one": (
        [
            (
                "[[signature.outputs]]",
                "[[signature.inputs]]\n"
                'name = "bias"\n'
                'dtype = "T"\n'
                'shape = ["N"]\n'
                "\n"
                "[[signature.outputs]]",
            ),
        ],
        [
            "norm/scale_fwd.toml:32: an input that every call passes comes before those "
            "that may be left out; found 'bias' after 'weight'; move it before",
        ],
    ),
    "a message that names what there is not": (
        [
            ("{N} columns", "{M} columns"),
        ],
        [
            "norm/scale_fwd.toml:39: signature.rules[0].message names params, dims and "
            "call-time numbers; found {M}; write one of eps, B, N",
        ],
    ),
    "a message with a format": (
        [
            ("{N} columns", "{N:d} columns"),
        ],
        [
            "norm/scale_fwd.toml:39: signature.rules[0].message names params, dims and "
            "call-time numbers; found {N:d}; did you mean 'N'?",
        ],
    ),
    "a message with an open brace": (
        [
            ("{N} columns", "{N columns"),
        ],
        [
            "norm/scale_fwd.toml:39: signature.rules[0].message: expected '}' before end "
            "of string; found 'there are {N columns; there is at least 1'; write {{ and }} for "
            "braces",
        ],
    ),
    "an integral accumulation dtype": (
        [
            (
                'reference = "torch.mul"',
                'reference = "torch.mul"\naccumulation_dtype = "int32"',
            ),
        ],
        [
            "norm/scale_fwd.toml:8: accumulation_dtype is a floating-point dtype; found "
            "'int32'; leave it out where nothing is accumulated",
        ],
    ),
    "a file that is not named after the op": (
        [
            ('name = "ScaleFwdOp"', 'name = "ScaledFwdOp"'),
        ],
        [
            "norm/scale_fwd.toml:1: the file of ScaledFwdOp is norm/scaled_fwd.toml; found "
            "norm/scale_fwd.toml; rename the file",
        ],
    ),
    "a snake that changes letters": (
        [
            ('family = "norm"', 'family = "norm"\nsnake = "scaling_fwd"'),
        ],
        [
            "norm/scale_fwd.toml:1: the file of ScaleFwdOp is norm/scaling_fwd.toml; found "
            "norm/scale_fwd.toml; rename the file",
            "norm/scale_fwd.toml:3: snake splits ScaleFwdOp (a trailing Op dropped) into "
            "words, and changes no letter; found 'scaling_fwd'; put underscores between "
            "the words of the class's name",
        ],
    ),
    "an implemented op without workloads and tolerances": (
        [
            ('status = "planned"', 'status = "implemented"'),
            (
                "[[workloads]]\n"
                'label = "small"\n'
                'model = "a model"\n'
                'phase = "prefill"\n'
                "params = { eps = 1e-5 }\n"
                "dims = { B = [2, 3], N = 8 }\n"
                'dtypes = { T = "float16" }\n'
                'present = ["weight"]\n',
                "",
            ),
        ],
        [
            "norm/scale_fwd.toml:1: an implemented op says how far y may lie from its "
            "formula; found none for float16, float32; add [[tolerances]]",
            "norm/scale_fwd.toml:1: an implemented op has a workload; found none; add "
            "[[workloads]]",
        ],
    ),
    "tolerances of what is not made": (
        [
            (
                "[roofline]",
                "[[tolerances]]\n"
                'output = "z"\n'
                'dtype = "float16"\n'
                "rtol = 0\n"
                "atol = 0\n"
                'reason = "exact"\n'
                "\n"
                "[[tolerances]]\n"
                'output = "y"\n'
                'dtype = "bfloat16"\n'
                "rtol = 0\n"
                "atol = 0\n"
                'reason = "exact"\n'
                "\n"
                "[roofline]",
            ),
        ],
        [
            "norm/scale_fwd.toml:51: a tolerance is of an output, or of a written input that no "
            "output stands for; found 'z'; write one of y",
            "norm/scale_fwd.toml:59: y is float16 or float32; found 'bfloat16'; did you "
            "mean 'float16'?",
        ],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_the_signature_is_refused(name: str, faults_of: Callable[..., list[str]]) -> None:
    changes, expected = CASES[name]
    assert faults_of(*changes) == expected
