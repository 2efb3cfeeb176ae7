"""The version of Lucid."""

__version__ = "0.1.0"
