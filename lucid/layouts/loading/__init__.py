"""The lines by which programs load a folder, for its card. `make test-consumers` runs them.

Only `layouts` imports from it. Code that Lucid itself runs does not belong here.
"""

from lucid.layouts.loading.lines import lines_for as lines_for
from lucid.layouts.loading.subject import Subject as Subject
