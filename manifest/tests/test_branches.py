"""Effect branches: one operator for each distinct set of what is written, filled and left out."""

from __future__ import annotations

import textwrap

import pytest

from tileops.manifest import Branch, load_entry, load_text

HEAD = """
name = "TestOp"
family = "norm"
status = "planned"
since = "0.1.0"
summary = "A test."
formula = "y = x"
reference = "none"
[signature.dims]
N = "columns"
[signature]
"""
X = '{name = "x", dtype = "float32", shape = ["N"]}'
WRITTEN = '{name = "x", dtype = "float32", shape = ["N"], mutated = true}'
STATE = '{name = "state", dtype = "float32", shape = ["N"], optional = true, mutated = true}'
Y = '{name = "y", dtype = "float32", shape = ["N"]}'


def branches(signature: str) -> list[Branch]:
    return list(load_text(HEAD + textwrap.dedent(signature)).branches)


def operators(signature: str) -> list[str]:
    return [branch.operator.removeprefix("norm_test") for branch in branches(signature)]


def test_a_pure_op_has_one_branch_without_a_suffix() -> None:
    [branch] = branches(f"inputs = [{X}]\noutputs = [{Y}]")
    assert branch.operator == "norm_test"
    assert (branch.written, branch.out, branch.omitted) == ((), False, ())
    assert branch.returns == ("y",)


def test_an_unconditional_write_keeps_its_suffix_and_returns_nothing_new() -> None:
    """The name says what the node does to memory, whether or not it could do less."""
    [branch] = branches(
        f"""
        inputs = [{WRITTEN}]
        outputs = [{{name = "y", dtype = "float32", shape = ["N"], alias = "x"}}]
        """
    )
    assert branch.operator == "norm_test_writes_x"
    assert branch.returns == ()


def test_an_absent_input_is_not_written() -> None:
    assert operators(f"inputs = [{X}, {STATE}]\noutputs = [{Y}]") == ["", "_writes_state"]


def test_the_suffix_repeats_for_each_input_in_signature_order() -> None:
    inputs = '{name = "%s", dtype = "float32", shape = ["N"], mutated = "inplace"}'
    found = branches(
        f"""
        params = [{{name = "inplace", type = "bool", default = false}}]
        inputs = [{inputs % "q"}, {inputs % "k"}]
        outputs = [
          {{name = "k_out", dtype = "float32", shape = ["N"], alias = "k"}},
          {{name = "q_out", dtype = "float32", shape = ["N"], alias = "q"}},
        ]
        """
    )
    assert [branch.operator for branch in found] == ["norm_test", "norm_test_writes_q_writes_k"]
    assert [branch.returns for branch in found] == [("k_out", "q_out"), ()]


def test_all_suffixes_in_their_order() -> None:
    signature = f"""
        params = [{{name = "stats", type = "bool", default = false}}]
        inputs = [{X}, {STATE}]
        outputs = [
          {{name = "y", dtype = "float32", shape = ["N"], buffer = "out"}},
          {{name = "mean", dtype = "float32", shape = [], when = "stats"}},
        ]
        """
    assert sorted(operators(signature)) == sorted(
        write + out + without
        for write in ("", "_writes_state")
        for out in ("", "_out")
        for without in ("", "_without_mean")
    )
    assert operators(signature)[0] == ""
    everything = branches(signature)[-1]
    assert everything.operator == "norm_test_writes_state_out_without_mean"
    assert everything.returns == ()


def test_out_cannot_fill_an_output_that_is_left_out() -> None:
    assert operators(
        f"""
        params = [{{name = "stats", type = "bool", default = false}}]
        inputs = [{X}]
        outputs = [{{name = "y", dtype = "float32", shape = ["N"], buffer = "out", when = "stats"}}]
        """
    ) == ["", "_out", "_without_y"]


def test_no_output_is_a_branch_that_returns_none() -> None:
    [branch] = branches(f"inputs = [{WRITTEN}]")
    assert (branch.operator, branch.returns) == ("norm_test_writes_x", ())


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ("state is None or bias is None", ["", "_writes_state", "_writes_bias"]),
        ("(state is None) == (bias is None)", ["", "_writes_state_writes_bias"]),
        ("state is not None or x is None", ["_writes_state", "_writes_state_writes_bias"]),
    ],
)
def test_only_satisfiable_combinations_count(rule: str, expected: list[str]) -> None:
    bias = STATE.replace("state", "bias")
    assert (
        operators(
            f"""
            inputs = [{X}, {STATE}, {bias}]
            outputs = [{Y}]
            rules = [{{require = "{rule}", message = "no"}}]
            """
        )
        == expected
    )


def test_an_effect_may_read_choices_and_whether_a_param_is_none() -> None:
    assert operators(
        f"""
        params = [
          {{name = "mode", type = "str", choices = ["copy", "inplace"], default = "copy"}},
          {{name = "momentum", type = "float", optional = true}},
        ]
        inputs = [
          {{name = "x", dtype = "float32", shape = ["N"], mutated = "mode == 'inplace'"}},
        ]
        outputs = [
          {Y},
          {{name = "count", dtype = "int64", shape = [], when = "momentum is None"}},
        ]
        """
    ) == ["", "_writes_x", "_without_count", "_writes_x_without_count"]


def test_batch_norm_writes_only_in_training() -> None:
    """Evaluation must be free to read statistics that another stream is reading too."""
    entry = load_entry("BatchNormFwdOp")
    assert [branch.written for branch in entry.branches] == [
        (),
        ("running_mean", "running_var"),
        ("running_mean", "running_var", "num_batches_tracked"),
    ]
