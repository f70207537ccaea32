"""Python's collector of cyclic garbage, kept away from what lives as long as the agent does."""

import gc


def spare_what_stays() -> None:
    """Leaves all objects that live now out of later collections; to be called once the first pass is made.

    Modules alone are 70,000 objects. A full collection went through all of them for 35 ms, at 1,000 names in
    the midst of three passes of a hundred (docs/performance.md). An object is still freed when nobody refers
    to it any more; only a cycle of objects that live now is not found when it dies later.
    """
    gc.collect()
    gc.freeze()
