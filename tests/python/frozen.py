"""Spares forked processes work for what the server has imported. The server imports it last.

A garbage collection would visit, and so copy, every object, and seldom find any; and commands,
which run the functions of atexit, would take apart torch's libraries of operators.
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
