"""Tables of measured forms: the node they are about, the table, the file.

`export` and `inspection.tuning` import from it. Measuring does not belong here.
"""
