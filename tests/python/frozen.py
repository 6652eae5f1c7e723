"""Excludes all objects of the process from garbage collection. The server imports it last.

A collection in a forked process would visit, and so copy, everything that the server has imported.
"""

import gc

gc.collect()
gc.freeze()
