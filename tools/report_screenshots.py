"""Pictures of a card's report for the README and the docs: the page in headless Chromium, at desktop and phone width.

    python tools/report_screenshots.py results/h200 docs/img

writes report-desktop.png, report-desktop-dark.png and report-phone.png. Chromium must be on the PATH.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from rungemm.report.page import write_page

SHOTS = (("report-desktop", 1180, 1500, False), ("report-desktop-dark", 1180, 1500, True),
         ("report-phone", 390, 1700, False))  # fmt: skip


def main() -> int:
    if len(sys.argv) != 3:
        print(__doc__)
        return 2
    results, out = Path(sys.argv[1]), Path(sys.argv[2])
    names = ("chromium", "chromium-browser", "google-chrome")
    chromium = next((path for name in names if (path := shutil.which(name))), None)
    if chromium is None:
        print("no chromium, chromium-browser or google-chrome on the PATH: install one")
        return 2
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        write_page(results, folder / "report.html")
        for name, width, height, dark in SHOTS:
            # Chromium's windows are never as narrow as a phone: the page lies in a frame.
            frame = folder / f"{name}.html"
            style = f"width:{width}px;height:{height}px;border:0"
            frame.write_text(f'<body style="margin:0"><iframe src="report.html" style="{style}"></iframe>')
            command = [
                chromium, "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
                "--virtual-time-budget=6000", f"--window-size={width},{height}",
                f"--user-data-dir={folder / 'profile'}", *(["--force-dark-mode"] if dark else []),
                f"--screenshot={(out / name).resolve()}.png", frame.as_uri(),
            ]  # fmt: skip
            subprocess.run(command, check=True, capture_output=True, timeout=120)
            print(f"wrote {out / name}.png")
    return 0


if __name__ == "__main__":
    sys.exit(main())
