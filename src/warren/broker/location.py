"""The location of a message that waits behind the ready entries of a lane, as one number of 64 bits.

The two highest bits say in what the message lies: the log, the pack or the overflow. The other bits are the
place that this gave when the message was put there.
"""

from __future__ import annotations

IN_LOG, IN_PACK, IN_OVERFLOW = 0, 1 << 62, 2 << 62
LOCATION_MASK = (1 << 62) - 1
