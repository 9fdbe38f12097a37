"""How the rotary program is laid out. Pure Python: no torch, no TileLang.

Sizes are in elements, dtypes are TileLang's names.
"""

import math
from dataclasses import dataclass

from tileops.positional.accesses import ACCESS_BYTES, ITEMSIZE

__all__ = ["RotaryConfig", "RotaryShape", "choose_config"]

# Figures are µs on an H200, medians of replays of a CUDA graph; brackets hold the time in which
# torch.add(x, 1, out=y) moved as many bytes in the same run. Tensors are of 16 bits. "Nx" is the
# items of a block. They are of a program with a branch for queries and one for keys, in which some
# stores went out in four parts.

#: Cosines and sines that a block keeps in shared memory: 32 KiB of the 48 that every card has.
MOST_ANGLES = 4096

#: Items that a block has at least, where one token has fewer. More tokens than that were slower:
#: 4096 tokens of 40 heads of 128 (21.70), 320 items, 22.6, two tokens 23.2, four 24.7.
_LEAST_ITEMS = 256

#: Threads of a block at most; each then has a second item on its way, rather than none.
#: 4096 tokens of 40 heads of 128 (21.70), 320 items: 64 threads 23.5, 128 22.8, 160 22.6, 256 23.1,
#: 512 26.8; by a cache (21.70): 128 24.2, 160 24.4, 256 29.3, 512 38.0. Of 32 heads, multimodal
#: (17.89), 256 items: 64 19.0, 128 18.9, 256 20.3, 512 22.8. Of 129 heads of 64 (33.82), 516 items:
#: 128 42.1, 192 35.4, 256 35.2, 512 37.6. One token of 32 sequences (1.29), 320 items: 64 2.85, 128
#: 1.90, 160 1.71, 256 1.85, 512 1.92.
_MOST_THREADS = 192

#: Items that a thread reads before it writes any, at most: 128 bytes, or 32 registers. 1, 2 and 4:
#: 4096 tokens of 40 heads (21.70) 22.8, 22.6, 22.5; 32768 tokens (158.7) 160.9, 163.7, 163.3; one
#: token of 32 sequences (1.29) 1.85, 1.71, 1.71, of 256 (3.13) 3.57, 3.26, 3.23; 4096 of 129 heads
#: of 64 (33.82) 35.0, three 35.4, 35.0.
_MOST_ITEMS = 4

#: The same where the rest of a head is copied: one item, and three accesses to the rest, are enough
#: on their way. 2048 tokens of 128 heads of 96, of which 24 are rotated (25.83), by this program:
#: 128 threads 38.6, 192 40.4, 384 36.4, 512 36.6.
_MOST_THREADS_WITH_REST = 384

#: Accesses to what is not rotated that a thread reads before it writes any, at most: 24 registers.
_MOST_REST = 6


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
        rest_batch: accesses to what is not rotated that it reads before it writes any; 0 where
            nothing of the sort is copied.
        span: pairs of a head that a block takes; a head of more is shared by several blocks.
    """

    threads: int
    tokens: int
    vector: int
    rest_vector: int
    batch: int
    rest_batch: int
    span: int

    def blocks_across(self, shape: RotaryShape) -> int:
        """Blocks that share a token."""
        return -(-shape.pairs // self.span)

    def rest(self, shape: RotaryShape) -> int:
        """Accesses to what is not rotated, of a head that is copied."""
        return (shape.head_dim - shape.rotary_dim) // self.rest_vector if shape.copies_rest else 0


def choose_config(shape: RotaryShape, alignment: int) -> RotaryConfig:
    """The layout for heads of ``shape`` in tensors that start on ``alignment`` bytes."""
    most = max(min(alignment, ACCESS_BYTES) // ITEMSIZE[shape.dtype], 1)
    vector = math.gcd(shape.pairs, shape.head_dim, most)
    rest_vector = math.gcd(shape.rotary_dim, shape.head_dim, most)
    span = min(shape.pairs, MOST_ANGLES // vector * vector)
    rest = (shape.head_dim - shape.rotary_dim) // rest_vector if shape.copies_rest else 0
    items = shape.heads * (span // vector)
    # An item is two accesses.
    tokens = max(min(_LEAST_ITEMS // (items + shape.heads * rest // 2), MOST_ANGLES // span, 32), 1)
    # As many threads as have an item each, or their fill of the rest, in equal rounds.
    rest_accesses = tokens * shape.heads * rest
    lanes = max(items * tokens, -(-rest_accesses // _MOST_REST))
    rounds = -(-lanes // (_MOST_THREADS_WITH_REST if rest else _MOST_THREADS))
    threads = -(-lanes // (rounds * 32)) * 32
    batch = min(-(-items * tokens // threads), _MOST_ITEMS)
    rest_rounds = -(-rest_accesses // threads)
    rest_batch = -(-rest_rounds // max(-(-rest_rounds // _MOST_REST), 1))
    return RotaryConfig(threads, tokens, vector, rest_vector, batch, rest_batch, span)
