"""Write expected.yaml of some FOLDERs, or of all, and sentences.md again; read the diff.

python -m tests.situations [FOLDER ...]
"""

import sys
import tempfile
from pathlib import Path

from tests.situations.situation import SENTENCES, SITUATIONS, Situation, sentences, situations, write_down

for folder in [SITUATIONS / Path(name).name for name in sys.argv[1:]] or situations():
    with tempfile.TemporaryDirectory() as directory:
        write_down(Situation(folder, Path(directory)))
        print(folder.name)
SENTENCES.write_text(sentences(), encoding="utf-8")
