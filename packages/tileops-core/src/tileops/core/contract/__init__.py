"""The contract registry, and the checks of what is registered.

A family registers a case for each of its ops in the module that its entry point of the group
``tileops.contracts`` names; :func:`load_contracts` finds those of all installed families.
``tileops contract`` and the pytest plugin make every check of every case.
"""

from tileops.core.contract.cold import check_cold_compile
from tileops.core.contract.registry import (
    CompileCase,
    cases,
    load_contracts,
    ops_with_boundary,
    ops_without_case,
    register,
)

__all__ = [
    "CompileCase",
    "cases",
    "check_cold_compile",
    "load_contracts",
    "ops_with_boundary",
    "ops_without_case",
    "register",
]
