"""The frequencies of rotary embeddings, and how models that were trained for longer scale them.

A *rotation* is what a kind of rotary embedding comes down to: one frequency for each pair, in
radians a position, and a factor of all cosines and sines. All of it is float64; the public
definitions compute the same in float32.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable

from tileops.core import Op
from tileops.core.errors import ParamError

__all__ = [
    "Rotation",
    "default_rotation",
    "finite_rotation",
    "llama31_rotation",
    "longrope_rotation",
    "require_finite",
    "yarn_rotation",
]

# A frequency is a float64 in 2**-64 of a turn too, which is where kernels begin.
_GREATEST = 2.0**900


@dataclasses.dataclass(frozen=True)
class Rotation:
    """Each pair's frequency, and more.

    Attributes:
        frequencies: radians a position, one for each pair.
        scale: what cosines and sines are multiplied by.
        rows: which row of the position ids each pair goes by, or None where there is one row.

    Raises:
        OverflowError: one of the numbers is not finite, or close to it.
    """

    frequencies: tuple[float, ...]
    scale: float = 1.0
    rows: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        # Not so of a NaN.
        finite = all(abs(number) < _GREATEST for number in self.frequencies)
        # Kernels take the factor as a float32.
        if not (finite and abs(self.scale) < 2.0**127):
            raise OverflowError("a frequency, or the factor of cosines and sines, is not finite")

    def __hash__(self) -> int:
        # Of a hundred numbers, at each look-up of a kernel.
        return self._hash

    @functools.cached_property
    def _hash(self) -> int:
        return hash((self.frequencies, self.scale, self.rows))


def require_finite(op: Op) -> None:
    """Requires that the floats among the params be finite, which an entry's rules cannot ask.

    Raises:
        ParamError: one is not.
    """
    for param in op.entry.signature.params:
        value = getattr(op, param.name)
        numbers = value if isinstance(value, tuple) else (value,)
        if not all(math.isfinite(number) for number in numbers if isinstance(number, float)):
            needs = "each number is finite" if numbers is value else "it is a finite number"
            raise ParamError(f"{type(op).__name__}: {param.name} is {value}; {needs}")


def finite_rotation(op: Op, rotation: Callable[[int], Rotation], rotary_dim: int) -> Rotation:
    """``rotation(rotary_dim)``, asked for by ``op``.

    Raises:
        ParamError: the op's params are each what its entry needs, but together give no numbers.
    """
    try:
        return rotation(rotary_dim)
    except (ArithmeticError, ValueError) as error:
        raise ParamError(
            f"{op!r}: a frequency of its {rotary_dim // 2} pairs, or the factor of cosines and "
            f"sines, is not a finite number; give params nearer to those of a model"
        ) from error


def _inverse_powers(rotary_dim: int, base: float) -> list[float]:
    return [base ** (-2 * i / rotary_dim) for i in range(rotary_dim // 2)]


@functools.lru_cache(maxsize=128)
def default_rotation(rotary_dim: int, base: float) -> Rotation:
    """``f_i = base ** (-2 i / rotary_dim)`` (https://arxiv.org/abs/2104.09864)."""
    return Rotation(tuple(_inverse_powers(rotary_dim, base)))


@functools.lru_cache(maxsize=128)
def llama31_rotation(
    rotary_dim: int,
    base: float,
    factor: float,
    low_freq_factor: float,
    high_freq_factor: float,
    original_max_position_embeddings: int,
) -> Rotation:
    """Llama 3.1's: short wavelengths are kept, long ones are slowed by ``factor``.

    Between them, where ``original / wavelength`` is from ``low_freq_factor`` to
    ``high_freq_factor``, a frequency is a mixture, linear in that ratio.
    """

    def scaled(frequency: float) -> float:
        turns = original_max_position_embeddings * frequency / (2 * math.pi)
        kept = (turns - low_freq_factor) / (high_freq_factor - low_freq_factor)
        kept = min(max(kept, 0.0), 1.0)
        return frequency * (kept + (1 - kept) / factor)

    return Rotation(tuple(map(scaled, _inverse_powers(rotary_dim, base))))


@functools.lru_cache(maxsize=128)
def yarn_rotation(
    rotary_dim: int,
    base: float,
    factor: float,
    original_max_position_embeddings: int,
    beta_fast: float,
    beta_slow: float,
    attention_factor: float | None,
    mscale: float | None,
    mscale_all_dim: float | None,
    truncate: bool,
) -> Rotation:
    """YaRN's (https://arxiv.org/abs/2309.00071), with the attention factor in cosines and sines.

    A ramp over the pairs, from those that turn ``beta_fast`` times over the original positions,
    which are kept, to those that turn ``beta_slow`` times, which are slowed by ``factor``.
    """

    def pair_that_turns(times: float) -> float:
        wavelength = original_max_position_embeddings / times
        return rotary_dim * math.log(wavelength / (2 * math.pi)) / (2 * math.log(base))

    low, high = pair_that_turns(beta_fast), pair_that_turns(beta_slow)
    if truncate:
        low, high = math.floor(low), math.ceil(high)
    # The end is clamped at the last element, not the last pair, as in the public definitions.
    low, high = max(low, 0), min(high, rotary_dim - 1)
    width = high - low or 0.001

    def scaled(i: int, frequency: float) -> float:
        slowed = min(max((i - low) / width, 0.0), 1.0)
        return frequency * (1 - slowed) + frequency / factor * slowed

    # A zero is as good as none, as in the public definitions.
    if attention_factor is None and mscale and mscale_all_dim:
        attention_factor = _yarn_scale(factor, mscale) / _yarn_scale(factor, mscale_all_dim)
    elif attention_factor is None:
        attention_factor = _yarn_scale(factor, 1.0)
    frequencies = enumerate(_inverse_powers(rotary_dim, base))
    return Rotation(tuple(scaled(i, f) for i, f in frequencies), attention_factor)


def _yarn_scale(factor: float, mscale: float) -> float:
    return 0.1 * mscale * math.log(factor) + 1.0 if factor > 1 else 1.0


@functools.lru_cache(maxsize=128)
def longrope_rotation(
    rotary_dim: int,
    base: float,
    factors: tuple[float, ...],
    factor: float,
    original_max_position_embeddings: int,
    attention_factor: float | None,
) -> Rotation:
    """LongRoPE's (https://arxiv.org/abs/2402.13753): each frequency divided by its own factor."""
    if attention_factor is None:
        attention_factor = 1.0
        if factor > 1:
            share = math.log(factor) / math.log(original_max_position_embeddings)
            attention_factor = math.sqrt(1 + share)
    frequencies = _inverse_powers(rotary_dim, base)
    divided = tuple(f / by for f, by in zip(frequencies, factors, strict=True))
    return Rotation(divided, attention_factor)
