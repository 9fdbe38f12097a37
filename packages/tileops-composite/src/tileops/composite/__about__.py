"""The version of tileops-composite."""

__version__ = "0.1.0"
