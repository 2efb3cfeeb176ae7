"""`python -m lucid` is the `lucid` command."""

from lucid.cli import main

main()
