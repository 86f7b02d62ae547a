"""One base URL in any of its forms; secrets that leave only through headers; what counts as one's own network."""

import pickle
from base64 import b64encode
from typing import Any

import pytest

from loadramp.client.endpoint import Endpoint, endpoint_of
from loadramp.registry import ScenarioError
from loadramp.scenario.scenario import Target

KEY = "sk-canary-0123456789"


def at(base_url: str, env: dict[str, str] | None = None, **target: Any) -> Endpoint:
    return endpoint_of(Target(base_url=base_url, **target), env or {})


@pytest.mark.parametrize(
    ("base_url", "root", "base"),
    [
        ("http://h:8000", "", "/v1"),
        ("http://h:8000/", "", "/v1"),
        ("http://h:8000/v1", "", "/v1"),
        ("http://h:8000/v1/", "", "/v1"),
        ("http://h:8000/v1//", "", "/v1"),
        ("http://h:8000/proxy", "/proxy", "/proxy/v1"),
        ("http://h:8000/proxy/v1/", "/proxy", "/proxy/v1"),
        ("http://h:8000/v1/chat/completions", "", "/v1"),
        ("http://h:8000/v1/chat/completions/", "", "/v1"),
        ("http://h:8000/v1/completions", "", "/v1"),
        ("http://h:8000/v1/responses", "", "/v1"),
        ("http://h:8000/v1/models", "", "/v1"),
        ("http://h:8000/health", "", "/v1"),
        ("http://h:8000/metrics", "", "/v1"),
        ("http://h:8000/api/v3/chat/completions", "/api", "/api/v3"),
        ("http://h:8000/v1beta/openai", "/v1beta/openai", "/v1beta/openai"),
        ("http://h:8000/openai/deployments/d/chat/completions", "/openai/deployments/d", "/openai/deployments/d"),
        ("http://h:8000/chat/completions", "", ""),
        ("h:8000", "", "/v1"),
        ("  http://h:8000 ", "", "/v1"),
        ("http://h:8000//v1", "", "/v1"),
        ("http://h:8000/proxy//v1//", "/proxy", "/proxy/v1"),
        ("HTTP://H:8000/v1", "", "/v1"),
    ],
)
def test_cf01_all_forms_of_a_base_url_reach_one_endpoint(base_url: str, root: str, base: str) -> None:
    endpoint = at(base_url)
    assert (endpoint.host, endpoint.port, endpoint.tls, endpoint.base, endpoint.root) == ("h", 8000, False, base, root)
    assert endpoint.path("chat") == f"{base}/chat/completions"
    assert endpoint.path("completions") == f"{base}/completions"
    assert endpoint.path("responses") == f"{base}/responses"
    assert endpoint.path("models") == f"{base}/models"
    assert endpoint.path("health") == f"{root}/health"
    assert endpoint.path("metrics") == f"{root}/metrics"


def test_cf01_the_query_string_is_kept_on_every_path() -> None:
    endpoint = at("https://h/openai/deployments/d/chat/completions?api-version=2024-06-01")
    assert endpoint.path("chat") == "/openai/deployments/d/chat/completions?api-version=2024-06-01"
    assert endpoint.path("models") == "/openai/deployments/d/models?api-version=2024-06-01"
    assert endpoint.address("chat").startswith("https://h/openai/")
    assert at("http://h:1/v1?a=b").path("health") == "/health?a=b"


@pytest.mark.parametrize(
    ("base_url", "authority", "host", "port"),
    [
        ("http://h", "h", "h", 80),
        ("https://h", "h", "h", 443),
        ("https://h:443/v1", "h", "h", 443),
        ("http://h:443", "h:443", "h", 443),
        ("http://[::1]:8000", "[::1]:8000", "::1", 8000),
        ("http://[fe80::1%25eth0]:8000", "[fe80::1%25eth0]:8000", "fe80::1%25eth0", 8000),
        ("http://bücher.example:80", "xn--bcher-kva.example", "xn--bcher-kva.example", 80),
    ],
)
def test_hosts_and_ports_in_their_forms(base_url: str, authority: str, host: str, port: int) -> None:
    endpoint = at(base_url)
    assert (endpoint.authority, endpoint.host, endpoint.port) == (authority, host, port)


def test_paths_are_fit_for_a_request_line() -> None:
    assert at("http://h/a b/ü/v1").path("chat") == "/a%20b/%C3%BC/v1/chat/completions"
    assert at("http://h/a%20b/v1").path("chat") == "/a%20b/v1/chat/completions"


@pytest.mark.parametrize(
    ("base_url", "said"),
    [
        ("", "base_url: missing"),
        ("ftp://h", "scheme 'ftp'; allowed: http, https"),
        ("http://", "no host"),
        ("http://h:99999", "not a URL"),
        ("http://h:port", "not a URL"),
        ("http://h:0", "port 0"),
        ("http://[::1", "not a URL"),
        ("http://a..b.ü", "not a URL"),
        ("http://a..b:80", "not a URL"),
    ],
)
def test_a_base_url_that_is_none_is_refused_in_words(base_url: str, said: str) -> None:
    with pytest.raises(ScenarioError, match=said.replace(".", r"\.")):
        at(base_url)


def test_the_environment_names_the_endpoint_where_the_scenario_does_not() -> None:
    assert at("", {"OPENAI_BASE_URL": "https://x/v1"}).url == "https://x/v1"
    assert at("http://h:1", {"OPENAI_BASE_URL": "https://x/v1"}).url == "http://h:1/v1"


def test_the_key_is_sent_and_only_when_there_is_one() -> None:
    assert at("http://h", {"OPENAI_API_KEY": f" {KEY}\n"}).headers == {"Authorization": f"Bearer {KEY}"}
    assert at("http://h", {"OPENAI_API_KEY": ""}).headers == {}
    assert at("http://h", {"OPENAI_API_KEY": KEY}, api_key_env="OTHER").headers == {}
    assert at("http://h", {"OTHER": KEY}, api_key_env="OTHER").headers == {"Authorization": f"Bearer {KEY}"}
    assert at("http://h", {"OPENAI_API_KEY": KEY}, api_key_env="").headers == {}


def test_a_user_in_the_url_is_basic_authorization_and_wins_over_the_key() -> None:
    endpoint = at("http://us%40er:p%3Ass@h:1/v1", {"OPENAI_API_KEY": KEY})
    assert endpoint.headers == {"Authorization": "Basic dXNAZXI6cDpzcw=="}
    assert (endpoint.url, endpoint.host) == ("http://h:1/v1", "h")


def test_headers_of_the_scenario_win_over_both() -> None:
    endpoint = at("http://u:pw@h", {"OPENAI_API_KEY": KEY}, headers={"authorization": "Token abc", "X-Team": "blue"})
    assert endpoint.headers == {"authorization": "Token abc", "X-Team": "blue"}


@pytest.mark.parametrize(
    "headers",
    [{"Content-length": "3"}, {"X A": "b"}, {"": "b"}, {"X": "a\r\nY: b"}, {"X": "世"}, {"X": "é"}, {"X\n": "b"}],
)
def test_headers_that_cannot_be_sent_are_refused(headers: dict[str, str]) -> None:
    with pytest.raises(ScenarioError, match=r"\[target\] headers"):
        at("http://h", headers=headers)


def test_a_key_of_two_lines_is_named_by_its_variable_and_not_shown() -> None:
    with pytest.raises(ScenarioError, match="the key in OPENAI_API_KEY") as caught:
        endpoint_of(Target(base_url="http://h"), {"OPENAI_API_KEY": "sk-one\nsk-two"})
    assert "sk-" not in str(caught.value)


def test_no_secret_survives_in_any_text() -> None:
    endpoint = at(
        "https://canary-user:canary%2Fpass@h:8000/v1?api-key=canary-query-1&sig=ab12&api-version=2024",
        {"OPENAI_API_KEY": KEY},
        headers={"X-Api-Key": "canary-header-1", "X-Long": "canary-long-value-000", "Cookie": "sid=canary-cookie",
                 "X-Auth": "Bearer canary-inner"},
        proxy="http://canary-proxy:canary-proxypass@proxy:3128",
    )  # fmt: skip
    text = " | ".join(
        [
            KEY, b64encode(b"canary-proxy:canary-proxypass").decode(),
            "canary-user:canary%2Fpass", "canary/pass", "canary%2Fpass", "canary-query-1", "ab12",
            "canary-header-1", "canary-long-value-000", "canary-cookie", "canary-inner", "canary-proxypass",
            endpoint.headers["Authorization"], "http://canary-user:canary%2Fpass@h:8000/v1",
            "socks://any:one@host", endpoint.address("chat"),
        ]
    )  # fmt: skip
    left = endpoint.redact(text)
    assert "canary" not in left
    assert "ab12" not in left
    assert "any:one" not in left
    assert "api-version=2024" in left
    assert "canary" not in repr(endpoint) + endpoint.url


def test_a_short_secret_is_taken_out_as_a_word_and_not_out_of_words() -> None:
    endpoint = at("http://u:pw@h")
    assert endpoint.redact("password pw, (pw) and http://u:pw@h") == "password ***, (***) and http://***@h"
    assert endpoint.redact("pwd") == "pwd"


def test_plain_headers_are_no_secrets() -> None:
    endpoint = at("http://h", headers={"User-Agent": "a long agent string", "X-Tenant": "blue"})
    assert endpoint.redact("a long agent string of blue") == "a long agent string of blue"


def test_an_endpoint_travels_to_other_processes() -> None:
    endpoint = at("http://u:pw@h:1/v1?key=secretsecret", headers={"X-Team": "blue"})
    assert pickle.loads(pickle.dumps(endpoint)) == endpoint
