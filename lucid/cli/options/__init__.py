"""The options of the commands, as dataclasses: groups that several commands share, and a class for each command.

Only the code that reads the command line and the commands themselves import from it. NumPy and what loads it never
belong here: `lucid --help` reads these files.
"""
