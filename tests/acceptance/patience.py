"""The variable PATIENCE: how many times what it takes on an ordinary machine anything may take."""

import os
from typing import Final

PATIENCE: Final = int(os.environ.get("PATIENCE", "1"))
