"""`python -m tests.situations [FOLDER ...]` writes expected.yaml of these again, or of all: read the diff."""

import sys
import tempfile
from pathlib import Path

from tests.situations.situation import SITUATIONS, Situation, situations, write_down

for folder in [SITUATIONS / name for name in sys.argv[1:]] or situations():
    with tempfile.TemporaryDirectory() as directory:
        write_down(Situation(folder, Path(directory)))
        print(folder.name)
