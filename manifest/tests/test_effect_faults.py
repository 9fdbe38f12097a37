"""Level 2: effects that contradict each other, or that no operator could have."""

from __future__ import annotations

from collections.abc import Callable

import pytest

CASES = {
    "an alias of an input that is never written": (
        [
            (
                'shape = ["*B", "N"]\n\n[[signature.rules',
                'shape = ["*B", "N"]\nalias = "x"\n\n[[signature.rules',
            ),
        ],
        [
            "norm/scale_fwd.toml:36: signature.outputs[0].alias is an input that the op "
            "writes; found 'x', which is never written; mark 'x' as mutated, or remove the "
            "alias",
        ],
    ),
    "an alias of what is no input": (
        [
            (
                'shape = ["*B", "N"]\n\n[[signature.rules',
                'shape = ["*B", "N"]\nalias = "z"\n\n[[signature.rules',
            ),
        ],
        [
            "norm/scale_fwd.toml:36: signature.outputs[0].alias is an input; found 'z'; "
            "write one of x, weight",
        ],
    ),
    "an alias and a buffer on one output": (
        [
            (
                'shape = ["*B", "N"]\n\n[[signature.inputs',
                'shape = ["*B", "N"]\nmutated = true\n\n[[signature.inputs',
            ),
            (
                'shape = ["*B", "N"]\n\n[[signature.rules',
                'shape = ["*B", "N"]\nalias = "x"\nbuffer = "out"\n\n[[signature.rules',
            ),
        ],
        [
            "norm/scale_fwd.toml:38: 'y' is an alias or fills a buffer, never both; found "
            "alias = 'x' and buffer = 'out'; remove one of them",
        ],
    ),
    "an alias of another shape": (
        [
            (
                'shape = ["*B", "N"]\n\n[[signature.inputs',
                'shape = ["*B", "N"]\nmutated = true\n\n[[signature.inputs',
            ),
            (
                'shape = ["*B", "N"]\n\n[[signature.rules',
                'shape = ["N"]\nalias = "x"\n\n[[signature.rules',
            ),
        ],
        [
            "norm/scale_fwd.toml:37: 'y' has the shape and dtype of what it aliases, T "
            "[*B, N]; found T [N]; give both the same",
        ],
    ),
    "two aliases of one input": (
        [
            (
                'shape = ["*B", "N"]\n\n[[signature.inputs',
                'shape = ["*B", "N"]\nmutated = true\n\n[[signature.inputs',
            ),
            (
                'shape = ["*B", "N"]\n\n[[signature.rules',
                'shape = ["*B", "N"]\n'
                'alias = "x"\n'
                "\n"
                "[[signature.outputs]]\n"
                'name = "z"\n'
                'dtype = "T"\n'
                'shape = ["*B", "N"]\n'
                'alias = "x"\n'
                "\n"
                "[[signature.rules",
            ),
        ],
        [
            "norm/scale_fwd.toml:43: two outputs are never one tensor; found 'y' and 'z' "
            "both alias 'x'; return it once",
        ],
    ),
    "two buffers": (
        [
            (
                'shape = ["*B", "N"]\n\n[[signature.rules',
                'shape = ["*B", "N"]\n'
                'buffer = "out"\n'
                "\n"
                "[[signature.outputs]]\n"
                'name = "z"\n'
                'dtype = "T"\n'
                'shape = ["*B", "N"]\n'
                'buffer = "out"\n'
                "\n"
                "[[signature.rules",
            ),
        ],
        [
            "norm/scale_fwd.toml:42: one output at most fills `out`; found 'y' and 'z'; "
            "remove one of the two",
        ],
    ),
    "a device that is no param": (
        [
            (
                'shape = ["*B", "N"]\n\n[[signature.rules',
                'shape = ["*B", "N"]\ndevice = "eps"\n\n[[signature.rules',
            ),
        ],
        [
            "norm/scale_fwd.toml:36: signature.outputs[0].device is a param of type "
            "device; found 'eps'; declare one in signature.params",
        ],
    ),
    "an effect that reads a dim": (
        [
            (
                "optional = true\n\n[[signature.outputs",
                'optional = "N > 1"\n\n[[signature.outputs',
            ),
        ],
        [
            "norm/scale_fwd.toml:30: signature.inputs[1].optional reads params and the "
            "presence of inputs: an operator's effects are fixed before any size is known; "
            "found 'N > 1' reads N; make it depend on a param",
        ],
    ),
    "an effect that reads a param that may be None": (
        [
            (
                "optional = true\n\n[[signature.outputs",
                'optional = "eps > 1.0"\n\n[[signature.outputs',
            ),
        ],
        [
            "norm/scale_fwd.toml:30: signature.inputs[1].optional: 'eps' may be None here; "
            "found 'eps > 1.0'; ask for `eps is not None` to its left",
        ],
    ),
    "an effect that reads a float": (
        [
            (
                "optional = true\n\n[[signature.outputs",
                'optional = "eps is not None and eps > 1.0"\n\n[[signature.outputs',
            ),
        ],
        [
            "norm/scale_fwd.toml:9: the param 'eps' has too many values for an effect to "
            "depend on; an effect reads bools, params with choices, and whether a param is "
            "None",
        ],
    ),
    "an effect that is no condition": (
        [
            (
                'shape = ["*B", "N"]\n\n[[signature.rules',
                'shape = ["*B", "N"]\nwhen = "1 + 1"\n\n[[signature.rules',
            ),
        ],
        [
            "norm/scale_fwd.toml:36: signature.outputs[0].when is a condition; found '1 + "
            "1', an int; write a condition",
        ],
    ),
    "an effect that compares tensors": (
        [
            (
                'shape = ["*B", "N"]\n\n[[signature.rules',
                'shape = ["*B", "N"]\nwhen = "x == weight"\n\n[[signature.rules',
            ),
        ],
        [
            "norm/scale_fwd.toml:36: signature.outputs[0].when: 'x' and 'weight' are not "
            "comparable; found 'x == weight'; of a tensor ask only whether it `is None`",
        ],
    ),
    "effects that no call can have": (
        [
            (
                "[[workloads]]",
                "[[signature.rules]]\n"
                'require = "weight is None and weight is not None"\n'
                'message = "never"\n'
                "\n"
                "[[workloads]]",
            ),
        ],
        [
            "norm/scale_fwd.toml:9: no combination of params and optional inputs satisfies "
            "the rules; remove the rule that refuses all of them",
        ],
    ),
    "a composite that writes": (
        [
            (
                'shape = ["*B", "N"]\n\n[[signature.inputs',
                'shape = ["*B", "N"]\nmutated = true\n\n[[signature.inputs',
            ),
            ("[[workloads]]", '[[composition]]\nop = "OtherFwdOp"\n\n[[workloads]]'),
        ],
        [
            "norm/scale_fwd.toml:42: a composite has no effects of its own: its sub-ops "
            "write; found mutated inputs x; remove `mutated`, or the composition",
            "norm/scale_fwd.toml:43: a composition names ops that have entries; found "
            "'OtherFwdOp'; write its entry",
        ],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_the_effects_are_refused(name: str, faults_of: Callable[..., list[str]]) -> None:
    changes, expected = CASES[name]
    assert faults_of(*changes) == expected
