"""The commands, a file each, with a function `run` that takes the options of the command and returns an exit code.

Only `lucid.cli.app` loads them, by name. What a user could want from Python, and options, do not belong here.
"""
