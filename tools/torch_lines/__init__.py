"""Thousands of single lines of torch code, whose results in torch are stored and replayed with Lucid without torch."""
