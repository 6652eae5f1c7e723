"""A page in headless Chromium: its contents once it is drawn, and a picture of it."""

import json
import shutil
import subprocess
import tempfile
from html import unescape
from pathlib import Path

import pytest
from patience import HANG

_NAMES = ("chromium-headless-shell", "chromium", "google-chrome", "chrome")
# Fails where the page asks for anything: a report needs nothing else.
_POLICY = (
    "<meta http-equiv=Content-Security-Policy "
    "content=\"default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'\">"
)


def browser():
    """Returns the program. Skips the test, loudly, if there is none."""
    for name in _NAMES:
        found = shutil.which(name)
        if found:
            return found
    return pytest.skip("NO BROWSER, nothing was looked at: apt-get install chromium-headless-shell")


def _run(*arguments):
    with tempfile.TemporaryDirectory() as profile:
        done = subprocess.run(
            [
                browser(), "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
                f"--user-data-dir={profile}", "--virtual-time-budget=2000", *arguments,
            ],
            capture_output=True, text=True, timeout=HANG, check=False,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def ask(page, script, folder):
    """Returns the result of `script`, a function's body, in the drawn page; JSON values."""
    probe = folder / "probe.html"
    asked = (
        f"<script>addEventListener('load', () => {{ const a = (() => {{ {script} }})();"
        "const out = document.createElement('pre'); out.id = 'answer';"
        "out.textContent = JSON.stringify(a); document.body.append(out); });</script>"
    )
    text = Path(page).read_text(encoding="utf-8")
    probe.write_text(text.replace("<title>", f"{_POLICY}{asked}<title>", 1), encoding="utf-8")
    drawn = _run("--dump-dom", "--window-size=1130,1500", probe.as_uri())
    assert '<pre id="answer">' in drawn, drawn[-2000:]
    answer = drawn.partition('<pre id="answer">')[2].partition("</pre>")[0]
    return json.loads(unescape(answer))


def picture(page, path, dark=False, size=(1130, 1500)):
    """A PNG of the page."""
    scheme = ["--blink-settings=preferredColorScheme=0"] if dark else []
    _run(*scheme, f"--window-size={size[0]},{size[1]}", f"--screenshot={path}", Path(page).as_uri())
    return path
