"""Saves forked processes work on the server's objects. The server imports this module last.

A garbage collection would write to every object, and so copy its page, to free hardly any. Commands
run the functions of atexit, which would tear down torch's libraries of operators.
"""

import gc
import weakref
from typing import Any

_finalizers: dict[Any, Any] = weakref.finalize._registry  # type: ignore[attr-defined]
for _finalizer in list(_finalizers):
    _finalizer.atexit = False
gc.collect()
gc.freeze()
gc.set_threshold(20_000, 20, 100)
