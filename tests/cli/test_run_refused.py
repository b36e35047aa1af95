"""What `slo run` refuses before any load: options, targets, a folder that holds a run."""

import socket
from pathlib import Path

import pytest

from tests.cli.conftest import EASY, QUICK, SHORT, Answer, answering, says_one_line, slo


def test_a_mistake_in_slo_yaml_is_said_before_any_load(sim: str, tmp_path: Path) -> None:
    path = tmp_path / "slo.yaml"
    path.write_text(EASY.replace("objectives:", "objectivs:"))
    done = slo("run", "--target", sim, "--slo", path, cwd=tmp_path)
    assert done.returncode == 2
    assert f"{path}:4:1: objectivs: is no key; did you mean objectives?" in done.stderr
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("option", "parts"),
    [
        (("--rate", "-3/s"), ("--rate", "'-3/s'", "more than 0/s")),
        (("--duration", "soon"), ("--duration", "'soon'", "420ms, 30s")),
        (("--workers", "0"), ("--workers", "'0'", "1 to ")),
        (("--arrival", "bursty"), ("--arrival", "'bursty'", "poisson, constant")),
        (("--mix", "math=x"), ("--mix", "math=0.6,code=0.4")),
        (("--mix", "math=nan"), ("--mix", "'math=nan'", "0 or more")),
        (("--mix", "math=1,math=2"), ("--mix", "names math twice")),
        (("--rate", "1e400/s"), ("--rate", "'1e400/s'", "too large")),
        (("--rate", "100000/s", "--duration", "1h"), ("--rate", "3.6e+08 requests", "10,000,000")),
        (("--duration", "1e30s"), ("--duration", "'1e30s'", "10,000h or less")),
        (("--workers", "100000"), ("--workers", "'100000'", "1 to ")),
        (("--input-class", "5"), ("--input-class", "'5': a prompt has 100 to 200000 tokens")),
        (("--worker-port", "7000"), ("--worker-port", "--expect-workers")),
        (("--expect-workers", "2", "--workers", "2"), ("--workers", "leave one away")),
        (("--sidecar", "maybe"), ("--sidecar", "'maybe'", "local, off, http://HOST:PORT")),
        (("--processes", "2"), ("No such option", "--processes")),
        (("--target", "localhost:8000"), ("--target", "http://HOST:PORT")),
        (("--target", "http://127.0.0.1:9/v1"), ("--target", "leave /v1 away")),
        (("--target", "http://[::1:80"), ("--target", "'http://[::1:80'", "[::1]")),
        (("--target", "http://127.0.0.1:99999"), ("--target", "1 to 65535")),
        (("--target", "http://u:secret@127.0.0.1:9"), ("--target", "(127.0.0.1:9)", "--api-key-")),
        (("--target", "http://127.0.0.1:9?a=1"), ("--target", "a query or a fragment")),
        (("--api-key-env", "TAILGATE_NO_KEY"), ("--api-key-env", "TAILGATE_NO_KEY")),
    ],
)
def test_a_wrong_option_is_one_line_that_says_what_is_allowed(
    tmp_path: Path, option: tuple[str, ...], parts: tuple[str, ...]
) -> None:
    done = slo("run", "--target", "http://127.0.0.1:9", *QUICK, *option, cwd=tmp_path)
    says_one_line(done, 2, "slo run: ", *parts)
    assert not list(tmp_path.rglob("*.json*"))


def test_a_rate_must_come_from_somewhere(tmp_path: Path) -> None:
    done = slo("run", "--target", "http://127.0.0.1:9", cwd=tmp_path)
    says_one_line(done, 2, "slo run: --rate is missing; give it, or a --slo file")


def test_a_target_that_does_not_listen_is_named_after_the_wait(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        done = slo("run", "--target", url, *QUICK, "--ready-timeout", "0.5s", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        f"waiting for {url}: nothing listens there",
        f"slo run: {url}: nothing listens there (waited 0.5 s)",
    ]
    assert not list((tmp_path / "runs").iterdir())


NO_API: Answer = (404, "application/json", b'{"detail":"Not Found"}')


def _models(name: str) -> Answer:
    return 200, "application/json", f'{{"data":[{{"id":"{name}"}}]}}'.encode()


MODELS = _models("m")


@pytest.mark.parametrize(
    ("answers", "parts"),
    [
        ({}, ("/v1/models: answers 404",)),
        ({"/v1/models": MODELS}, ("/v1/chat/completions", "404")),
        ({"/v1/models": _models(r"a\u0000b")}, ("/v1/models", r"'a\x00b' is no name", "--model")),
        ({"/v1/models": _models("m" * 500_000)}, ("/v1/models", "is no name", "--model")),
        (
            {"/v1/models": MODELS, "/v1/chat/completions": (500, "text/plain", b"\x1b[31mred")},
            (r"HTTP 500: \x1b[31mred",),
        ),
        (dict.fromkeys(("/health", "/v1/models"), (200, "text/html", b"<p>")), ("HTML",)),
        (
            {"/v1/models": MODELS, "/v1/chat/completions": (200, "text/html", b"<p>hello</p>")},
            ("/v1/chat/completions", "text/html"),
        ),
    ],
)
def test_a_target_that_is_no_such_api_is_one_line_at_once(
    tmp_path: Path, answers: dict[str, Answer], parts: tuple[str, ...]
) -> None:
    with answering(lambda path: answers.get(path, NO_API)) as url:
        done = slo("run", "--target", url, *QUICK, *SHORT, "--out", "here", cwd=tmp_path)
    says_one_line(done, 2, f"slo run: {url}", *parts)
    assert not (tmp_path / "here").exists()


def test_a_second_run_into_one_folder_is_refused(finished: Path, sim: str, tmp_path: Path) -> None:
    before = (finished / "requests.jsonl").read_bytes()
    done = slo("run", "--target", sim, *QUICK, *SHORT, "--out", finished, cwd=tmp_path)
    says_one_line(done, 2, f"slo run: {finished}: holds a run already", "--force")
    assert (finished / "requests.jsonl").read_bytes() == before
