"""The entries of this distribution: valid, complete, and one for each op that is planned."""

from __future__ import annotations

import math
import shutil
import subprocess
from pathlib import Path

import pytest

from tileops.manifest import contract_document, entry_roots, iter_entries, load_entry
from tileops.manifest.checks.schema import schema_folder
from tileops.manifest.model import Entry
from tileops.manifest.validate import validate_roots

ROOT = entry_roots()[0]
ENTRIES = list(iter_entries())
each_entry = pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)

PLANNED = {
    "norm": "RMSNorm LayerNorm FusedAddRMSNorm FusedAddLayerNorm AdaLayerNorm AdaLayerNormZero "
    "GroupNorm InstanceNorm BatchNorm RMSNormPerTokenQuant FusedAddRMSNormPerTokenQuant",
    "attention": "GQAPrefill GQAPrefillWithLSE GQAPrefillVarlen GQAPaged PagedKVCacheWrite "
    "MergeAttentionStates MLADecodePaged",
    "positional": "Alibi Sinusoidal RoPE RoPELlama31 RoPEYaRN RoPELongRoPE RoPECache "
    "RoPEMultimodal FusedQKNormRoPE",
    "composite": "PreNormAttention GatedMLP TransformerBlock AdaLNZeroBlock",
}


def test_all_are_valid() -> None:
    assert [str(fault) for fault in validate_roots([ROOT]).faults] == []


def test_every_op_has_its_entry() -> None:
    expected = {(family, f"{op}FwdOp") for family, ops in PLANNED.items() for op in ops.split()}
    assert expected - {(entry.family, entry.name) for entry in ENTRIES} == set()


@each_entry
def test_an_entry_explains_all_that_it_names(entry: Entry) -> None:
    """Documentation is made of these texts, so none may be missing."""
    signature = entry.signature
    named = (*signature.params, *signature.inputs, *signature.ints, *signature.outputs)
    assert [value.name for value in named if not value.doc] == []
    assert entry.workloads != ()
    assert entry.roofline.flops is not None


@each_entry
def test_an_editor_finds_the_schema(entry: Entry) -> None:
    """The first line leads from the entry to the schema, in a checkout."""
    first = entry.path.read_text(encoding="utf-8").splitlines()[0]
    assert first.startswith("#:schema ")
    if schema_folder().parent.joinpath("manifest").is_dir():
        target = (entry.path.parent / first.removeprefix("#:schema ")).resolve()
        assert target == schema_folder() / "op.schema.json"


@each_entry
def test_inplace_says_what_is_written(entry: Entry) -> None:
    for param in entry.signature.params:
        if param.name == "inplace":
            written = {value.name for value in entry.signature.inputs if value.mutated is not False}
            assert written <= set(param.doc.replace(",", "").split())


def test_eps_says_what_it_is_added_to() -> None:
    """The mean square of root-mean-square norms, the variance of all others."""
    said = {
        entry.name: param.doc.split(";")[0]
        for entry in ENTRIES
        for param in entry.signature.params
        if param.name == "eps"
    }
    of_variance = {name for name, doc in said.items() if doc == "added to the variance"}
    assert set(said.values()) == {"added to the variance", "added to the mean square"}
    norms = ["Layer", "FusedAddLayer", "AdaLayer", "Group", "Instance", "Batch"]
    assert of_variance == {
        *(f"{norm}NormFwdOp" for norm in norms),
        "AdaLayerNormZeroFwdOp",
        "AdaLNZeroBlockFwdOp",
    }


def test_one_model_scales_its_scores_in_one_way() -> None:
    scales = {
        (entry.name, workload.label): workload.params.get("softmax_scale")
        for entry in ENTRIES
        for workload in entry.workloads
        if workload.model == "deepseek-ai/DeepSeek-V3"
        and any(param.name == "softmax_scale" for param in entry.signature.params)
    }
    assert len(scales) == 3
    # 192 ** -0.5, times the square of YaRN's 0.1 ln(40) + 1.
    scale = 192**-0.5 * (0.1 * math.log(40) + 1) ** 2
    assert list(scales.values()) == pytest.approx([scale] * 3)


def test_batch_norm_in_training_needs_an_eps_as_pytorch_does() -> None:
    entry = load_entry("BatchNormFwdOp")
    messages = [
        rule.message.format(eps=0.0)
        for rule in entry.signature.rules
        if rule.require.names <= {"eps", "training"}
        and not rule.require.evaluate({"eps": 0.0, "training": True})
    ]
    assert messages == ["eps is 0.0; it is above 0 in training"]


def test_boundaries_are_where_the_rule_says() -> None:
    """A call-time tensor input and no composition: exactly these ops are nodes."""
    without = {entry.name for entry in ENTRIES if not entry.compile_op_names}
    composites = {f"{op}FwdOp" for op in PLANNED["composite"].split()}
    assert without == composites | {"AlibiFwdOp", "SinusoidalFwdOp"}


def test_operator_names() -> None:
    assert load_entry("RMSNormFwdOp").compile_op_names == ("tileops::norm_rms_norm_fwd",)
    assert load_entry("RoPEFwdOp").compile_op_names == (
        "tileops::positional_rope_fwd",
        "tileops::positional_rope_fwd_writes_q_writes_k",
        "tileops::positional_rope_fwd_without_k_out",
        "tileops::positional_rope_fwd_writes_q_without_k_out",
    )
    assert load_entry("PagedKVCacheWriteFwdOp").compile_op_names == (
        "tileops::attention_paged_kv_cache_write_fwd_writes_k_cache_writes_v_cache",
    )


def test_the_contract_holds_nothing_that_a_compiled_artefact_does_not_depend_on() -> None:
    document = contract_document(load_entry("RMSNormFwdOp"))
    assert list(document) == [
        "namespace", "name", "dims", "dtypes", "combinations", "params", "inputs", "ints",
        "outputs", "rules", "branches",
    ]  # fmt: skip
    assert document["inputs"][1] == {
        "name": "weight",
        "dtype": "W",
        "shapes": [["*normalized_shape"]],
        "optional": True,
        "mutated": False,
    }


@pytest.mark.skipif(shutil.which("tombi") is None, reason="needs tombi, an editor's TOML checker")
def test_editors_accept_the_entries_and_show_a_misspelt_key(tmp_path: Path) -> None:
    def lint(*paths: Path) -> tuple[int, str]:
        command = ["tombi", "lint", "--offline", *map(str, paths)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr

    assert lint(ROOT.path)[0] == 0
    text = load_entry("RMSNormFwdOp").path.read_text(encoding="utf-8")
    first = f"#:schema {schema_folder() / 'op.schema.json'}\n"
    wrong = tmp_path / "wrong.toml"
    wrong.write_text(first + text.split("\n", 1)[1].replace("optional = true", "optinal = true", 1))
    code, output = lint(wrong)
    assert code == 1
    assert 'unevaluated property "optinal" is not allowed' in output
    assert f"{wrong.name}:47:1" in output
