"""The version of tileops-attention."""

__version__ = "0.1.0"
