"""`python -m lab.site FOLDER` builds the site of the documentation: it is read as files, and asks no other host."""

import argparse
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from .conf import ROOT, root_doc, stage

parser = argparse.ArgumentParser(prog="make site", description=__doc__)
parser.add_argument("folder", type=Path)
parser.add_argument("--sphinx", required=True, metavar="PYTHON", help="the Python that has Sphinx")
said = parser.parse_args()
mark = said.folder / "objects.inv"  # Sphinx's own list of what a site has.
try:
    said.folder.mkdir(parents=True, exist_ok=True)
    if any(said.folder.iterdir()) and not mark.exists():
        sys.exit(f"{said.folder} has other files than a site's. Name a new folder: make site DIR=…")
except OSError as error:
    sys.exit(f"{said.folder} cannot be written: {error.strerror}. Name another folder: make site DIR=…")
with TemporaryDirectory() as pages:
    stage(Path(pages))
    command = [said.sphinx, "-m", "sphinx", "--fail-on-warning", "--keep-going", "--quiet", "-b", "html"]
    command += ["-d", f"{pages}/.doctrees"]
    done = subprocess.run([*command, "-c", str(ROOT / "lab/site"), pages, str(said.folder)], check=False)
if done.returncode:
    sys.exit("The site was not built whole: the lines above say which page is wrong.")
(said.folder / ".buildinfo").unlink(missing_ok=True)
to_root = f'<!doctype html><title>Tidegate</title><meta http-equiv="refresh" content="0; url={root_doc}.html">\n'
(said.folder / "index.html").write_text(to_root, encoding="utf-8")
print(f"{said.folder / 'index.html'}: open it in a browser")
