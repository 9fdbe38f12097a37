"""What layouts need to know of cards, by architecture. Pure Python: no torch, no TileLang."""

__all__ = ["MULTIPROCESSORS"]

#: Multiprocessors of the usual card of an architecture. Only the number of blocks hangs on it, so
#: another card of the same architecture is served as well, if not as evenly.
MULTIPROCESSORS = {"sm_80": 108, "sm_89": 142, "sm_90a": 132, "sm_100a": 148}
