"""Rotary ops whose frequencies are scaled for sequences longer than those first trained on."""

from __future__ import annotations

from collections.abc import Sequence

from tileops.core.errors import ParamError
from tileops.positional.rope.base import ScaledRotaryOp
from tileops.positional.rope.frequencies import (
    Rotation,
    finite_rotation,
    llama31_rotation,
    longrope_rotation,
    yarn_rotation,
)

__all__ = ["RoPELlama31FwdOp", "RoPELongRoPEFwdOp", "RoPEYaRNFwdOp"]


class RoPELlama31FwdOp(ScaledRotaryOp):
    """Rotary position embedding with Llama 3.1's scaling of its frequencies.

    As :class:`RoPEFwdOp`, but of the frequencies ``f = base ** (-2 i / rotary_dim)`` those of
    wavelengths ``w = 2 pi / f`` above ``original / low_freq_factor`` are ``f / factor``, those
    below ``original / high_freq_factor`` stay, and between them they are ``(1 - s) f / factor + s
    f`` with ``s = (original / w - low_freq_factor) / (high_freq_factor - low_freq_factor)``: the
    ``llama3`` of transformers' configurations.

    Args:
        factor: what low frequencies are divided by.
        low_freq_factor: see above.
        high_freq_factor: see above.
        original_max_position_embeddings: positions that the model was first trained with.
        rotary_dim: how much of a head is rotated, from its start, even; None is all of it.
        base: the longest wavelength over 2 pi (rope_theta).
        interleaved: whether neighbours make a pair (GPT-J) rather than the two halves (NeoX).
        inplace: whether q and k are written, and returned, rather than new tensors.
        target: the name of the target to serve the calls; None chooses by device.

    Call:
        As that of :class:`RoPEFwdOp`, which also says what it raises.
    """

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_max_position_embeddings: int
    base: float

    def __init__(
        self,
        factor: float = 8.0,
        low_freq_factor: float = 1.0,
        high_freq_factor: float = 4.0,
        original_max_position_embeddings: int = 8192,
        rotary_dim: int | None = None,
        base: float = 500000.0,
        interleaved: bool = False,
        *,
        inplace: bool = False,
        target: str | None = None,
    ) -> None:
        self.factor = factor
        self.low_freq_factor = low_freq_factor
        self.high_freq_factor = high_freq_factor
        self.original_max_position_embeddings = original_max_position_embeddings
        self.rotary_dim = rotary_dim
        self.base = base
        self.interleaved = interleaved
        self.inplace = inplace
        super().__init__(target=target)

    def rotation(self, rotary_dim: int) -> Rotation:
        return llama31_rotation(
            rotary_dim,
            self.base,
            self.factor,
            self.low_freq_factor,
            self.high_freq_factor,
            self.original_max_position_embeddings,
        )


class RoPEYaRNFwdOp(ScaledRotaryOp):
    """Rotary position embedding with YaRN's scaling (https://arxiv.org/abs/2309.00071).

    As :class:`RoPEFwdOp`, but with the frequencies ``f / factor * (1 - r) + f * r`` for ``f = base
    ** (-2 i / rotary_dim)``, r falling from 1 at the pair that turns ``beta_fast`` times over the
    original positions to 0 at the one that turns ``beta_slow`` times, and with cosines and sines
    times ``attention_factor``: the ``yarn`` of transformers' configurations.

    Args:
        factor: what low frequencies are divided by.
        original_max_position_embeddings: positions that the model was first trained with.
        beta_fast: turns over the original positions from which a frequency is kept.
        beta_slow: turns up to which a frequency is divided by ``factor``.
        attention_factor: what cosines and sines are multiplied by; None is ``0.1 ln(factor) + 1``,
            or where ``mscale`` and ``mscale_all_dim`` are both given and not 0 ``(0.1 mscale
            ln(factor) + 1) / (0.1 mscale_all_dim ln(factor) + 1)``.
        mscale: see above; alone it is not read, as in transformers.
        mscale_all_dim: see above.
        truncate: whether the ends of the ramp are rounded outwards to whole pairs.
        rotary_dim: how much of a head is rotated, from its start, even; None is all of it.
        base: the longest wavelength over 2 pi (rope_theta).
        interleaved: whether neighbours make a pair (GPT-J) rather than the two halves (NeoX).
        inplace: whether q and k are written, and returned, rather than new tensors.
        target: the name of the target to serve the calls; None chooses by device.

    Call:
        As that of :class:`RoPEFwdOp`, which also says what it raises.
    """

    factor: float
    original_max_position_embeddings: int
    beta_fast: float
    beta_slow: float
    attention_factor: float | None
    mscale: float | None
    mscale_all_dim: float | None
    truncate: bool
    base: float

    def __init__(
        self,
        factor: float,
        original_max_position_embeddings: int,
        beta_fast: float = 32.0,
        beta_slow: float = 1.0,
        attention_factor: float | None = None,
        mscale: float | None = None,
        mscale_all_dim: float | None = None,
        truncate: bool = True,
        rotary_dim: int | None = None,
        base: float = 10000.0,
        interleaved: bool = False,
        *,
        inplace: bool = False,
        target: str | None = None,
    ) -> None:
        self.factor = factor
        self.original_max_position_embeddings = original_max_position_embeddings
        self.beta_fast = beta_fast
        self.beta_slow = beta_slow
        self.attention_factor = attention_factor
        self.mscale = mscale
        self.mscale_all_dim = mscale_all_dim
        self.truncate = truncate
        self.rotary_dim = rotary_dim
        self.base = base
        self.interleaved = interleaved
        self.inplace = inplace
        super().__init__(target=target)
        # What is wrong for one pair is wrong for any number.
        finite_rotation(self, self.rotation, 2)

    def rotation(self, rotary_dim: int) -> Rotation:
        return yarn_rotation(
            rotary_dim,
            self.base,
            self.factor,
            self.original_max_position_embeddings,
            self.beta_fast,
            self.beta_slow,
            self.attention_factor,
            self.mscale,
            self.mscale_all_dim,
            self.truncate,
        )


class RoPELongRoPEFwdOp(ScaledRotaryOp):
    """Rotary position embedding with LongRoPE's scaling (https://arxiv.org/abs/2402.13753).

    As :class:`RoPEFwdOp`, but with the frequencies ``base ** (-2 i / rotary_dim) / ext[i]``, where
    ``ext`` is ``long_factor`` if ``long_context`` and else ``short_factor``, and with cosines and
    sines times ``attention_factor``: the ``longrope`` of transformers' configurations, which takes
    the long factors for a batch that passes ``original_max_position_embeddings``. Here the op says
    which, so that neither a graph nor a captured launch depends on the positions' values.

    Args:
        short_factor: what each frequency is divided by, one a pair, up to the original length.
        long_factor: the same for longer sequences.
        original_max_position_embeddings: positions that the model was first trained with.
        factor: how many times longer sequences became; only ``attention_factor`` rests on it.
        attention_factor: what cosines and sines are multiplied by; None is ``sqrt(1 + ln(factor) /
            ln(original_max_position_embeddings))``, or 1 where ``factor`` is at most 1.
        long_context: whether ``long_factor`` holds.
        rotary_dim: how much of a head is rotated, from its start, even; None is all of it.
        base: the longest wavelength over 2 pi (rope_theta).
        interleaved: whether neighbours make a pair (GPT-J) rather than the two halves (NeoX).
        inplace: whether q and k are written, and returned, rather than new tensors.
        target: the name of the target to serve the calls; None chooses by device.

    Call:
        As that of :class:`RoPEFwdOp`, which also says what it raises.
    """

    short_factor: tuple[float, ...]
    long_factor: tuple[float, ...]
    original_max_position_embeddings: int
    factor: float
    attention_factor: float | None
    long_context: bool
    base: float

    def __init__(
        self,
        short_factor: Sequence[float],
        long_factor: Sequence[float],
        original_max_position_embeddings: int,
        factor: float,
        attention_factor: float | None = None,
        long_context: bool = False,
        rotary_dim: int | None = None,
        base: float = 10000.0,
        interleaved: bool = False,
        *,
        inplace: bool = False,
        target: str | None = None,
    ) -> None:
        self.short_factor = short_factor  # type: ignore[assignment]  # made canonical below
        self.long_factor = long_factor  # type: ignore[assignment]  # made canonical below
        self.original_max_position_embeddings = original_max_position_embeddings
        self.factor = factor
        self.attention_factor = attention_factor
        self.long_context = long_context
        self.rotary_dim = rotary_dim
        self.base = base
        self.interleaved = interleaved
        self.inplace = inplace
        super().__init__(target=target)
        # The entry's rules cannot ask each number of a sequence.
        for name in ("short_factor", "long_factor"):
            if not all(factor > 0 for factor in getattr(self, name)):
                raise ParamError(
                    f"RoPELongRoPEFwdOp: {name} is {getattr(self, name)}; each number is above 0"
                )
        finite_rotation(self, self.rotation, 2 * len(self.short_factor))

    def rotation(self, rotary_dim: int) -> Rotation:
        return longrope_rotation(
            rotary_dim,
            self.base,
            self.long_factor if self.long_context else self.short_factor,
            self.factor,
            self.original_max_position_embeddings,
            self.attention_factor,
        )
