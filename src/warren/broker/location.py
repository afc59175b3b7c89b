"""Where a message lies that waits behind the ready entries of a lane: in the two highest bits, in what; and
below them, what that gave for the place.
"""

from __future__ import annotations

IN_LOG, IN_PACK, IN_OVERFLOW = 0, 1 << 62, 2 << 62
LOCATION_MASK = (1 << 62) - 1
