"""The version of tileops-positional."""

__version__ = "0.1.0"
