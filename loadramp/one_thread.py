"""One thread of OpenBLAS for the processes of a run: it keeps one a core, and these wait busily.

From the moment it is loaded, and after each call that they share, each of them takes 0.07 s of a core, on the machine
of the client or of the server that is measured; what they share here is too small to gain by it.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager

VARIABLE = "OPENBLAS_NUM_THREADS"
"""OpenBLAS reads it when it is loaded, and never again."""


@contextmanager
def one_thread() -> Iterator[None]:
    """OpenBLAS has one thread in what is loaded meanwhile, and in processes that are started meanwhile.

    Later ones do not see the variable: they may be a server. If the user has set it, that is what counts.
    """
    if VARIABLE in os.environ:
        yield
        return
    os.environ[VARIABLE] = "1"
    try:
        yield
    finally:
        os.environ.pop(VARIABLE, None)
