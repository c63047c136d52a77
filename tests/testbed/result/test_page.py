import shutil
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.result import Facts, Grid, Result, Text
from tests.commands import called

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="there is no headless Chromium here")


def console_of(page, *, has_timeline):
    """Return what the browser's console says of *page*, and fail where it shows nothing."""
    assert CHROMIUM is not None
    options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--v=0"]
    command = [CHROMIUM, *options, "--virtual-time-budget=8000", "--dump-dom", page.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=90)
    assert ("bk-Canvas" in done.stdout or "bk-Figure" in done.stdout) == has_timeline
    assert "<svg" in done.stdout
    return [line for line in done.stderr.splitlines() if "CONSOLE" in line and "[bokeh " not in line]


@needs_chromium
@pytest.mark.parametrize(
    ("command", "has_timeline", "most_bytes"),
    [
        ("simulate --html {page} ring --network dgx-h100 --ranks 16 --nbytes 1M", False, 300_000),
        ("run --html {page} --ranks 2 {script}", True, 5_000_000),
    ],
)
def test_a_page_opens_without_a_network_and_its_console_says_nothing(
    command, has_timeline, most_bytes, tmp_path
):
    page, script = tmp_path / "page.html", tmp_path / "script.py"
    script.write_text("import torch.distributed as dist\ndist.init_process_group()\ndist.barrier()\n")

    called(command.format(page=page, script=script))

    assert console_of(page, has_timeline=has_timeline) == []
    assert page.stat().st_size < most_bytes
    assert "http" not in page.read_text().split("</style>")[0]


@given(st.text(max_size=40))
def test_no_text_becomes_markup(text):
    parts = [Text((text,)), Facts({text: text}), Grid((text,), ((text,),))]
    result = Result(text, text, "measured", text, parts=parts)

    for shown in (result.to_html(), result._repr_html_()):
        assert shown.count("<script") == 0
        assert shown.count("<p") == 1 + shown.count("<pre")
