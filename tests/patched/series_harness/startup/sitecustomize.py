# SPDX-License-Identifier: Apache-2.0
"""On the module path of a benchmark, offers the stand-in to every process it starts.

Python imports a module of this name at start. Tests need none: their plugin does it.
"""

from series_harness import extensions

extensions.install(stand_in=True)
