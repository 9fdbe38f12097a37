"""The version of this distribution, which hatch reads and moves."""

__version__ = "0.1.0"
