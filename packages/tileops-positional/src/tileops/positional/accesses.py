"""What one access of a thread moves, and how a table that is only written is shared out.

Pure Python: no torch, no TileLang.
"""

__all__ = ["ACCESS_BYTES", "ITEMSIZE", "in_turn", "spread"]

ITEMSIZE = {"float16": 2, "bfloat16": 2, "float32": 4}

#: One access moves at most 16 bytes a thread, the widest load or store before sm_100.
ACCESS_BYTES = 16

# Figures are µs on an H200, medians of replays of a CUDA graph, with the time in which y.fill_
# wrote as many bytes in the same run in brackets. They are of an earlier sinusoidal program with
# the same blocks, which stored in pieces of 4 bytes and took more instructions.

#: Blocks that a table is cut into at least, rather than a thread doing more in turn: two for each
#: of 132 multiprocessors. 1024x1024 of float32 (2.28): 1024 blocks 3.99, 512 3.48, 256 3.50, 128
#: 3.72, 64 5.05. 1500x1280 of float16 (2.20): 750 blocks 4.11, 375 3.24, 188 3.29, 94 3.77.
_LEAST_BLOCKS = 264


def spread(accesses: int) -> tuple[int, int]:
    """The threads of a block for a line of ``accesses``, and the blocks that the line takes.

    As few blocks of up to 256 threads as there can be, in equal parts: 512 took 108.3 µs where 256
    took 75.6, for 65536x2048 of bfloat16.
    """
    across = -(-accesses // 256)
    return -(-accesses // (across * 32)) * 32, across


def in_turn(lines: int, across: int, most: int) -> int:
    """How many of ``lines`` a block writes one after the other, ``across`` blocks to a line.

    ``most`` where there are enough; fewer where the table would not fill the card.
    """
    found = most
    while found > 1 and -(-lines // found) * across < _LEAST_BLOCKS:
        found //= 2
    return found
