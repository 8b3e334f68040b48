"""``python -m posenc``."""

import sys

from posenc._cli import main

sys.exit(main())
