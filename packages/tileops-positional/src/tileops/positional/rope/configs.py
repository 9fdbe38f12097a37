"""How the rotary program is laid out. Pure Python: no torch, no TileLang.

Sizes are in elements, dtypes are TileLang's names.
"""

import math
from dataclasses import dataclass

from tileops.positional.accesses import ACCESS_BYTES, ITEMSIZE

__all__ = ["RotaryConfig", "RotaryShape", "choose_config"]

#: Cosines and sines that a block keeps in shared memory: 32 KiB of the 48 that every card has.
MOST_ANGLES = 4096


@dataclass(frozen=True)
class RotaryShape:
    """What a program is made for; the number of tokens is known at the launch only.

    Attributes:
        dtype: of the rotated tensors.
        heads_q: query heads.
        heads_k: key heads, 0 where only queries are rotated.
        head_dim: the size of a head.
        rotary_dim: how much of a head is rotated, from its start; even.
        interleaved: whether neighbours make a pair, rather than the two halves.
        copies_rest: whether the rest of a head is copied, since the result is a new tensor.
        positions: dtype of the position ids, or None where tokens are counted.
        cache: dtype of the table of cosines and sines, or None where they are computed.
        sectioned: whether each frequency says which row of the position ids it goes by.
    """

    dtype: str
    heads_q: int
    heads_k: int
    head_dim: int
    rotary_dim: int
    interleaved: bool
    copies_rest: bool
    positions: str | None
    cache: str | None
    sectioned: bool

    @property
    def pairs(self) -> int:
        """Pairs of a head, each turned by an angle."""
        return self.rotary_dim // 2

    @property
    def heads(self) -> int:
        return self.heads_q + self.heads_k


@dataclass(frozen=True)
class RotaryConfig:
    """A block takes whole tokens; its items, each some pairs of a head, go round its threads.

    Attributes:
        threads: threads of a block.
        tokens: tokens that a block takes.
        vector: pairs of an item, and elements of each of its two accesses.
        rest_vector: elements of an access to what is not rotated.
        batch: items that a thread reads before it writes any.
        span: pairs of a head that a block takes; a head of more is shared by several blocks.
    """

    threads: int
    tokens: int
    vector: int
    rest_vector: int
    batch: int
    span: int

    def blocks_across(self, shape: RotaryShape) -> int:
        """Blocks that share a token."""
        return -(-shape.pairs // self.span)


def choose_config(shape: RotaryShape, alignment: int) -> RotaryConfig:
    """The layout for heads of ``shape`` in tensors that start at multiples of ``alignment`` bytes.

    Untimed so far. At least 256 items a block, as many threads as make the fewest rounds of at most
    256, and up to four items in flight a thread: 128 bytes, or 32 registers.
    """
    most = max(min(alignment, ACCESS_BYTES) // ITEMSIZE[shape.dtype], 1)
    vector = math.gcd(shape.pairs, shape.head_dim, most)
    rest_vector = math.gcd(shape.rotary_dim, shape.head_dim, most)
    span = min(shape.pairs, MOST_ANGLES // vector * vector)
    items = shape.heads * (span // vector)
    tokens = max(min(256 // items, MOST_ANGLES // span, 32), 1)
    rounds = -(-items * tokens // 256)
    threads = -(-items * tokens // (rounds * 32)) * 32
    return RotaryConfig(threads, tokens, vector, rest_vector, min(rounds, 4), span)
