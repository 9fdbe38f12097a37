"""The ops that the row programs compute: what each reads, computes and writes.

Pure Python: no torch, no TileLang.
"""

from dataclasses import dataclass
from typing import Literal

__all__ = [
    "ADA_LAYER_NORM",
    "ADA_LAYER_NORM_ZERO",
    "FUSED_ADD_LAYER_NORM",
    "FUSED_ADD_RMS_NORM",
    "FUSED_ADD_RMS_NORM_PER_TOKEN_QUANT",
    "LAYER_NORM",
    "RMS_NORM",
    "RMS_NORM_PER_TOKEN_QUANT",
    "RowOp",
]


@dataclass(frozen=True)
class RowOp:
    """One op over rows of ``n`` elements; what follows is float32 where no rounding is named.

    1. ``v = x``; with ``residual`` among the inputs ``v = residual + x``, with ``gate`` too
       ``v = residual + gate * x``; the sum is rounded to x's dtype and written to
       ``residual_out``.
    2. ``z = v / sqrt(mean(v**2) + eps)``, or for "layer"
       ``z = (v - mean(v)) / sqrt(var(v) + eps)``.
    3. ``z * (weight + weight_offset) + bias``, or where modulated ``z * (1 + scale) + shift``.
    4. ``y`` is that, rounded to x's dtype; where quantized it is divided by its row's ``scale``
       and rounded to float8_e4m3fn.

    Attributes:
        name: what the kernels are named after.
        inputs: the tensors that are read, in the order in which a kernel takes them. ``weight``
            and ``bias`` may be absent from a call.
        outputs: those that are written, in the order that follows the inputs.
        statistics: the root mean square, or mean and biased variance.
        modulated: whether ``scale`` and ``shift`` have rows that one or more rows of x share.
        quantized: whether ``y`` is float8_e4m3fn with one float32 ``scale`` a row.
    """

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    statistics: Literal["rms", "layer"] = "rms"
    modulated: bool = False
    quantized: bool = False

    @property
    def added(self) -> bool:
        """Whether a residual is added before the statistics."""
        return "residual" in self.inputs

    @property
    def gated(self) -> bool:
        """Whether x is scaled by a gate before it is added."""
        return "gate" in self.inputs


RMS_NORM = RowOp("rms_norm", ("x", "weight"), ("y",))
LAYER_NORM = RowOp("layer_norm", ("x", "weight", "bias"), ("y",), "layer")
FUSED_ADD_RMS_NORM = RowOp("fused_add_rms_norm", ("x", "residual", "weight"), ("y", "residual_out"))
FUSED_ADD_LAYER_NORM = RowOp(
    "fused_add_layer_norm", ("x", "residual", "weight", "bias"), ("y", "residual_out"), "layer"
)
ADA_LAYER_NORM = RowOp("ada_layer_norm", ("x", "scale", "shift"), ("y",), "layer", modulated=True)
ADA_LAYER_NORM_ZERO = RowOp(
    "ada_layer_norm_zero",
    ("x", "residual", "gate", "scale", "shift"),
    ("y", "residual_out"),
    "layer",
    modulated=True,
)
RMS_NORM_PER_TOKEN_QUANT = RowOp(
    "rms_norm_per_token_quant", ("x", "weight"), ("y", "scale"), quantized=True
)
FUSED_ADD_RMS_NORM_PER_TOKEN_QUANT = RowOp(
    "fused_add_rms_norm_per_token_quant",
    ("x", "residual", "weight"),
    ("y", "scale", "residual_out"),
    quantized=True,
)
