"""The version of tileops-core."""

__version__ = "0.1.0"
