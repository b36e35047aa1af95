"""The server's smaller parts, each by itself; and the page for people."""

import re
from collections.abc import Iterator

import httpx
import pytest

from target.alert import RollingAlert, Rule
from target.memory_trend import MemoryTrend
from target.replicas import labelled, options_of
from target.startup import Startup
from target.temperature import kind_of, read_policy
from tests.serving import running_target


def test_the_alarm_has_hysteresis_and_forgets_what_is_old() -> None:
    said: list[str] = []
    alert = RollingAlert(Rule(1.0, window_s=10.0, clear=0.8), said.append)
    for n in range(20):
        alert.observe(n * 0.1, 2.0)
    assert (alert.firing, len(said)) == (True, 1)  # one line, with the twentieth
    for n in range(40):
        alert.observe(12.0 + n * 0.1, 0.9)  # under the limit, but not by enough
    assert (alert.firing, len(said)) == (True, 1)
    for n in range(40):
        alert.observe(30.0 + n * 0.1, 0.7)
    assert (alert.firing, len(said)) == (False, 2)
    assert alert.value(100.0) is None


def test_the_trend_is_the_growth_of_a_request_and_noise_is_none() -> None:
    bytes_now = 0

    def read() -> tuple[int, int]:
        return bytes_now, 2 * bytes_now

    trend = MemoryTrend(read)
    assert trend.slope() is None
    for n in range(50):
        with trend.request():
            bytes_now += 100 if n % 2 else 300
            bytes_now -= 150
    assert trend.slope() == pytest.approx(50, rel=0.05)
    assert trend.before is not None
    assert trend.after is not None
    assert trend.after[0] - trend.before[0] == -50
    silent = MemoryTrend(lambda: None)
    with silent.request():
        pass
    assert (silent.after, silent.slope()) == (None, None)


@pytest.mark.parametrize(
    ("prompt", "kind"),
    [
        ("What is 17 * 23?", "math"),
        ("求解方程 x+1=2", "math"),
        ("Write a Python function that sorts 3 + 4 lists", "code"),
        ("写一个函数，返回列表的和", "code"),
        ("Tell me about Paris", "other"),
    ],
)
def test_the_kind_of_a_prompt(prompt: str, kind: str) -> None:
    assert kind_of(prompt) == kind


def test_a_policy_is_read_or_refused_with_what_is_allowed() -> None:
    assert read_policy("math=0.6,code=0.2") == {"math": 0.6, "code": 0.2}
    for wrong in ("maths=0.6", "math=3", "math", "math=x"):
        with pytest.raises(ValueError, match="allowed: math, code, other"):
            read_policy(wrong)


def test_a_replica_gets_our_options_without_the_fronts() -> None:
    ours = ["serve", "--engine", "sim", "--replicas", "2", "--port=80", "--host", "0.0.0.0",
            "--device", "cuda", "--fault", "error"]  # fmt: skip
    assert options_of(ours, None) == [
        *("serve", "--engine", "sim", "--device", "cuda", "--fault", "error"),
        *("--host", "127.0.0.1", "--port", "0"),
    ]
    assert options_of(ours, "cuda:1")[-2:] == ["--device", "cuda:1"]


def test_metrics_of_replicas_are_one_valid_text() -> None:
    from prometheus_client.parser import text_string_to_metric_families

    text = '# HELP a b\n# TYPE a gauge\na 1.0\n# TYPE h histogram\nh_bucket{le="1"} 2.0\n'
    families = list(text_string_to_metric_families("".join(labelled([text, text]))))
    samples = [(s.name, s.labels, s.value) for family in families for s in family.samples]
    assert ("a", {"replica": "1"}, 1.0) in samples
    assert ("h_bucket", {"replica": "0", "le": "1"}, 2.0) in samples
    assert len(samples) == 4


def test_phases_of_a_start_add_up() -> None:
    startup = Startup()
    with startup.phase("weights"):
        assert startup.current == "weights"
    with startup.phase("weights"):
        pass
    report = startup.report()
    assert report["total_s"] >= report["weights_s"] >= 0
    assert report["compile_s"] == 0.0


@pytest.fixture(scope="module")
def polite() -> Iterator[str]:
    options = ("--engine", "sim", "--ttft-ms", "1", "--temperature-policy", "math=0.1")
    with running_target(*options) as url:
        yield url


def test_the_policy_stands_in_info(polite: str) -> None:
    assert httpx.get(f"{polite}/info").json()["temperature_policy"] == {"math": 0.1}


def test_the_chat_page_asks_no_other_host(polite: str) -> None:
    answer = httpx.get(polite)
    assert answer.headers["content-type"].startswith("text/html")
    assert "connect-src 'self'" in answer.headers["content-security-policy"]
    assert not re.search(r"(src|href)=|https?://|@import|url\(", answer.text)
    assert "/v1/chat/completions" in answer.text
