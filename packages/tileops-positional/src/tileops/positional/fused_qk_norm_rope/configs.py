"""How the fused program is laid out. Pure Python: no torch, no TileLang.

Sizes are in elements, dtypes are TileLang's names.
"""

import math
from dataclasses import dataclass

from tileops.positional.accesses import ACCESS_BYTES, ITEMSIZE
from tileops.positional.rope.configs import MOST_ANGLES

__all__ = ["FusedConfig", "FusedShape", "choose_config"]

#: Elements of a head that a thread holds at most, 16-bit ones in 32 registers.
MOST_HELD = 64

# Figures are µs on an H200, medians of replays of a CUDA graph, of bf16 heads of 128; brackets hold
# the time in which torch.add(x, 1, out=y) moved as many bytes in the same run.

#: Threads of a block at most. 32 query and 8 key heads, 320 lanes, and two in flight: 4096 tokens
#: in place (21.90): 64 threads 25.0, 128 24.4, 160 23.8, 256 30.4, 512 53.6; into a new tensor
#: (25.81): 64 29.4, 128 30.1, 160 27.8, 256 35.3. 32768 tokens in place (158.7): 128 163.8, 160
#: 165.7, 256 221.0. More tokens than one: 4096 in place, 256 threads, two 28.7, four 28.1.
#: In flight, with 160 threads: 4096 in place 1 23.4, 2 23.8, 4 24.2; new 1 27.7, 2 27.8, 4 28.8;
#: 32768 1 162.8, 2 165.7, 4 163.9. One token of 32 sequences, 576 lanes of 192 threads (1.88): 1
#: 3.39, 2 3.13, 4, which is all three, 2.93.
_MOST_THREADS = 256


@dataclass(frozen=True)
class FusedShape:
    """What a program is made for; the number of tokens is known at the launch only.

    Attributes:
        dtype: of the packed tensor.
        weight_dtype: of both weights.
        heads_q: query heads.
        heads_k: key heads.
        heads_v: value heads.
        head_dim: the size of a head.
        rotary_dim: how much of a head is rotated, from its start; even.
        interleaved: whether neighbours make a pair, rather than the two halves.
        inplace: whether the result is the packed tensor itself.
        positions: dtype of the position ids, or None where tokens are counted.
        cache: dtype of the table of cosines and sines, or None where they are computed.
    """

    dtype: str
    weight_dtype: str
    heads_q: int
    heads_k: int
    heads_v: int
    head_dim: int
    rotary_dim: int
    interleaved: bool
    inplace: bool
    positions: str | None
    cache: str | None

    @property
    def pairs(self) -> int:
        """Pairs of a head, each turned by an angle."""
        return self.rotary_dim // 2

    @property
    def normalized(self) -> int:
        """Heads that are normalized and rotated."""
        return self.heads_q + self.heads_k


@dataclass(frozen=True)
class FusedConfig:
    """A head to a few lanes of a warp, whole tokens to a block.

    Attributes:
        threads: threads of a block.
        tokens: tokens that a block takes.
        lanes: threads that share a head: a power of two up to 32.
        vector: elements of an access; an item is as many pairs, in two accesses.
        batch: heads that a thread reads its part of before it writes any.
        held: whether a head stays in registers from its sum to its result, rather than being read
            again; its angles are then in shared memory, and else worked out where they are used.
    """

    threads: int
    tokens: int
    lanes: int
    vector: int
    batch: int
    held: bool

    def items(self, shape: FusedShape) -> int:
        """Items of a head that a lane has, where it has the most."""
        return -(-shape.pairs // (self.vector * self.lanes))

    def rest(self, shape: FusedShape) -> int:
        """Accesses to what is not rotated that a lane has, where it has the most."""
        return -(-(shape.head_dim - shape.rotary_dim) // (self.vector * self.lanes))


def choose_config(shape: FusedShape, alignment: int) -> FusedConfig:
    """The layout for heads of ``shape`` in tensors that start at multiples of ``alignment`` bytes.

    A lane has one item, or two accesses of the rest; at least 256 lanes a block, as many threads as
    make the fewest rounds of at most 256, and as many heads in flight a lane as there are rounds,
    up to three, but one where there are two.
    """
    most = ACCESS_BYTES // ITEMSIZE[shape.dtype]
    if alignment < ACCESS_BYTES:
        # The same number of a weight's elements is read at once, and may take more bytes.
        widest = max(ITEMSIZE[shape.dtype], ITEMSIZE[shape.weight_dtype])
        most = max(alignment // widest, 1)
    vector = math.gcd(shape.pairs, shape.head_dim, most)
    rest = (shape.head_dim - shape.rotary_dim) // vector
    wanted = max(shape.pairs // vector, -(-rest // 2), 1)
    lanes = min(1 << (wanted - 1).bit_length(), 32)
    probe = FusedConfig(0, 0, lanes, vector, 0, True)
    per_lane = (2 * probe.items(shape) + probe.rest(shape)) * vector
    held = per_lane <= MOST_HELD and shape.pairs <= MOST_ANGLES
    share = shape.normalized * lanes
    tokens = max(min(256 // share, MOST_ANGLES // shape.pairs if held else 32, 32), 1)
    rounds = -(-share * tokens // _MOST_THREADS)
    threads = -(-share * tokens // (rounds * 32)) * 32
    batch = min(rounds, 3) if held and rounds > 2 else 1
    return FusedConfig(threads, tokens, lanes, vector, batch, held)
