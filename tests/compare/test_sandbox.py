"""Answers that mean harm do none; where the sandbox cannot be set up, nothing is run."""

import os
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from slo import sandbox
from slo.sandbox import call

pytestmark = pytest.mark.skipif(
    sandbox.refusal() is not None, reason=f"no sandbox here: {sandbox.refusal()}"
)


def test_a_function_is_called_with_each_list_of_arguments() -> None:
    assert call("def f(a, b): return a + b", "f", [[1, 2], ["x", "y"]]).values == (3, "xy")


def test_a_fork_bomb_ends_and_leaves_no_process() -> None:
    started = time.monotonic()
    found = call("import os\ndef f():\n while True: os.fork()", "f", [[]], wall_s=5)
    assert found.error is not None
    assert time.monotonic() - started < 5
    assert not _processes_with("import os\\ndef f()")


def _processes_with(text: str) -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if text in path.read_text(errors="replace"):
                found.append(str(path))
        except OSError:
            continue
    return found


def test_a_bomb_of_threads_ends() -> None:
    code = """
import threading, time
def f():
    while True:
        threading.Thread(target=time.sleep, args=(60,)).start()
"""
    found = call(code, "f", [[]], wall_s=5)
    assert found.error is not None
    assert "can't start new thread" in found.error


@pytest.mark.parametrize(
    "body", ["while True: pass", "import time; time.sleep(60)", "return sum(range(10**12))"]
)
def test_an_endless_answer_is_ended(body: str) -> None:
    started = time.monotonic()
    found = call(f"def f():\n {body}", "f", [[]], wall_s=0.5)
    assert found.error == "it did not end within 0.5 s"
    assert time.monotonic() - started < 2


def test_ten_gigabytes_are_not_given() -> None:
    found = call("def f(): return len(bytearray(10**10))", "f", [[]])
    assert found.error is not None
    assert found.error.startswith("MemoryError")


def test_files_outside_can_neither_be_deleted_nor_read_nor_written(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("here")
    code = """
import os, shutil
def f(path):
    seen = []
    for harm in (os.remove, open, shutil.rmtree, lambda p: open(p, "w"), os.listdir):
        try:
            harm(path)
            seen.append(str(harm))
        except OSError as error:
            pass
    return seen
"""
    places = [str(precious), str(tmp_path), "/etc/passwd", "/root/.bashrc", "/tmp"]
    assert call(code, "f", [[place] for place in places]).values == ([],) * len(places)
    assert precious.read_text() == "here"


def test_the_interpreters_own_files_stay_as_they_are() -> None:
    code = "import os\ndef f(): os.remove(os.__file__)"
    found = call(code, "f", [[]])
    assert found.error is not None
    assert "Read-only file system" in found.error
    assert Path(os.__file__).exists()


@pytest.fixture
def server() -> Iterator[tuple[int, list[str]]]:
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            """Keep the test's output its own."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server.server_port, asked
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_no_server_can_be_reached(server: tuple[int, list[str]]) -> None:
    port, asked = server
    code = """
from urllib.request import urlopen
def f(port): return urlopen(f"http://127.0.0.1:{port}/leak", timeout=2).status
"""
    found = call(code, "f", [[port]])
    assert found.error is not None
    assert "unreachable" in found.error
    assert not asked


def test_a_flood_of_output_is_cut_off() -> None:
    code = "import os\ndef f():\n while True:\n  for fd in range(9):\n   try: os.write(fd, b'x' * 65536)\n   except OSError: pass"  # noqa: E501
    assert call(code, "f", [[]], wall_s=3).error is not None


def test_rights_cannot_be_had_again() -> None:
    code = """
import ctypes, os
def f():
    libc = ctypes.CDLL(None)
    mounted = libc.mount(None, b"/", None, 32 | 4096, None)  # remount, bind: writable again
    fresh = libc.unshare(0x10000000)  # a user namespace, with all capabilities
    root = libc.setuid(0) if os.getuid() else -1
    return [mounted, fresh, root]
"""
    assert call(code, "f", [[]]).values == ([-1, -1, -1],)


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("def g(): pass", "no function f"),
        ("def f(): return 1 / 0", "ZeroDivisionError"),
        ("def f(): return object()", "TypeError"),
        ("import os\ndef f(): os._exit(0)", "without a result"),
        ("raise SystemExit(0)", "SystemExit"),
        ("def f(:", "SyntaxError"),
        ("import ctypes\ndef f(): ctypes.string_at(0)", "without a result"),
    ],
)
def test_an_answer_that_fails_says_how(code: str, told: str) -> None:
    found = call(code, "f", [[]])
    assert found.error is not None
    assert told in found.error


def test_the_right_values_are_not_inside_to_be_found() -> None:
    """What comes back is compared outside; a forged result would have to be the right one."""
    code = """
import os
os.write(3, b'{"calls": [{"value": "forged"}]}\\n')
os._exit(0)
"""
    assert call(code, "f", [["secret"]]).values in ((), ("forged",))


def test_where_unshare_is_missing_nothing_is_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    sandbox.refusal.cache_clear()
    try:
        assert "need unshare(1)" in str(sandbox.refusal())
    finally:
        monkeypatch.undo()
        sandbox.refusal.cache_clear()
