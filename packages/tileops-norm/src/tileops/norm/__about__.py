"""The version of tileops-norm."""

__version__ = "0.1.0"
