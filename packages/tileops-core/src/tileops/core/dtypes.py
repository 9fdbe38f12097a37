"""Names of dtypes, as entries, keys and messages spell them."""

from __future__ import annotations

import torch

__all__ = ["dtype_name"]


def dtype_name(dtype: torch.dtype) -> str:
    """The name of ``dtype`` in an entry: ``"float16"``."""
    return str(dtype).removeprefix("torch.")
