"""The version of tileops-manifest."""

__version__ = "0.1.0"
