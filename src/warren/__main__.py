"""`python -m warren` is the command `warren`."""

import sys

from warren.cli.main import main

sys.exit(main())
