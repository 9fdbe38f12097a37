"""The TOML parser: the standard library's, or its backport before Python 3.11."""

from __future__ import annotations

import sys

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # type: ignore[import-not-found,unused-ignore]

__all__ = ["tomllib"]
