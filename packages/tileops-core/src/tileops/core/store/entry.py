"""One entry of the store: a shared library with what is known about it behind its last byte.

A loader of shared libraries does not look past the end that the library's own headers name, so
one file is both what is loaded and what is checked, and one rename publishes it whole::

    library | facts, as JSON | magic, version, both lengths, SHA-256 of library and facts
"""

from __future__ import annotations

import hashlib
import json
import struct
from typing import NamedTuple

__all__ = ["FORMAT", "DamagedError", "Facts", "pack", "unpack"]

FORMAT = 1
"""Counted up by any change of what an entry holds, or of what is true of a stored program."""

_MAGIC = b"TILEOPS"
_FOOTER = struct.Struct("<7sBQQ32s")


class DamagedError(Exception):
    """What stands in the store under a key cannot be used; the message says why."""


class Facts(NamedTuple):
    """What an entry says about its library.

    ``key`` is the whole text that the entry was stored under, ``symbol`` the library's entry
    function, ``source`` what was compiled. ``nvcc`` is the version that compiled it, for people to
    read: it is no part of the key.
    """

    key: str
    symbol: str
    source: str
    nvcc: str | None


def pack(library: bytes, facts: Facts) -> bytes:
    """What follows ``library`` in an entry's file."""
    text = json.dumps(facts._asdict()).encode()
    digest = hashlib.sha256(library + text).digest()
    return text + _FOOTER.pack(_MAGIC, FORMAT, len(library), len(text), digest)


def unpack(data: bytes, key: str) -> Facts:
    """The facts of an entry that was stored under ``key``.

    Raises:
        DamagedError: the bytes are not a whole entry of this format and this key.
    """
    if len(data) < _FOOTER.size:
        raise DamagedError("it is truncated")
    magic, version, library, text, digest = _FOOTER.unpack(data[-_FOOTER.size :])
    if magic != _MAGIC:
        raise DamagedError("it is truncated, or no entry of this store")
    if version != FORMAT:
        raise DamagedError(f"it is of format {version}, and this version reads format {FORMAT}")
    body = data[: -_FOOTER.size]
    if len(body) != library + text or hashlib.sha256(body).digest() != digest:
        raise DamagedError("its checksum does not match its bytes")
    try:
        facts = Facts(**json.loads(body[library:]))
    except (TypeError, ValueError):
        raise DamagedError(
            "what it says about its library is not what this version reads"
        ) from None
    if facts.key != key:
        raise DamagedError("it was stored under another key")
    return facts
