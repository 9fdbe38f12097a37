"""What one access of a thread moves. Pure Python: no torch, no TileLang."""

__all__ = ["ACCESS_BYTES", "ITEMSIZE"]

ITEMSIZE = {"float16": 2, "bfloat16": 2, "float32": 4}

#: One access moves at most 16 bytes a thread, the widest load or store before sm_100.
ACCESS_BYTES = 16
