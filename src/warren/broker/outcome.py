"""What a queue says of a message that is published to it: it has it; it is safe when the round of writing
that gathers now is over, or only when the one after that is; it does not take it.
"""

from __future__ import annotations

STORED, ON_ITS_WAY, AFTER_NEXT, REFUSED = 0, 1, 2, 3
