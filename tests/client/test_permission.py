"""Which hosts may be connected to: what counts is where a name leads, not how it ends."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from loadramp.client.endpoint import endpoint_of
from loadramp.client.permission import check_hosts, is_private
from loadramp.client.readiness import Unreachable
from loadramp.registry import ScenarioError
from loadramp.scenario.scenario import Metrics, Target


def never(name: str) -> list[str]:
    raise OSError(f"{name} was looked up")


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1", "127.8.8.8", "127.1", "2130706433", "0x7f000001", "localhost", "LOCALHOST.", "::1", "[::1]",
        "0.0.0.0", "10.1.2.3", "172.16.0.1", "172.31.255.255", "192.168.1.1", "169.254.1.1", "fe80::1%eth0", "fd00::1",
        "100.64.0.1", "100.127.255.254", "::ffff:10.0.0.1",
    ],
)  # fmt: skip
def test_one_s_own_network_is_private(host: str) -> None:
    assert is_private(host, never)


@pytest.mark.parametrize(
    "host",
    ["8.8.8.8", "134744072", "172.32.0.1", "100.128.0.1", "192.0.2.1", "203.0.113.7", "198.51.100.1", "2001:4860::1",
     "::ffff:8.8.8.8"],
)  # fmt: skip
def test_everything_else_is_public(host: str) -> None:
    assert not is_private(host, never)


@pytest.mark.parametrize(
    ("addresses", "private"),
    [
        (["10.0.0.5"], True),
        (["10.0.0.5", "fd00::2"], True),
        (["10.0.0.5", "8.8.8.8"], False),
        ([], False),
        (["?"], False),
    ],
)
def test_a_name_is_private_when_all_its_addresses_are(addresses: list[str], private: bool) -> None:
    assert is_private("llm.corp.example", lambda name: addresses) is private


NAMES = ["vllm", "gpu01.local", "llm.internal", "vllm.default.svc", "vllm.default.svc.cluster.local", "box.lan",
         "nas.home.arpa", "server.test", "app.localhost", "internal.example.com"]  # fmt: skip


@pytest.mark.parametrize("host", NAMES)
def test_no_name_is_trusted_for_how_it_ends(host: str) -> None:
    assert not is_private(host, lambda name: ["93.184.216.34"])
    assert is_private(host, lambda name: ["10.3.2.1"])


def check(target: Target, permitted: Sequence[str] = (), metrics: Metrics | None = None, **known: str) -> None:
    def resolve(name: str) -> list[str]:
        if name not in {key.replace("_", "."): value for key, value in known.items()}:
            raise OSError(-2, "Name or service not known")
        return [known[name.replace(".", "_")]]

    check_hosts(endpoint_of(target, {}), target, permitted, metrics, resolve)


LOCAL = "http://127.0.0.1:8000"


@pytest.mark.parametrize(
    ("target", "metrics", "words"),
    [
        (Target(base_url="http://llm.internal"), None, r"\[target\] base_url: llm.internal is a public host"),
        (Target(base_url=LOCAL, proxy="http://u:p@llm.internal:3128"), None, r"\[target\] proxy: llm.internal is a"),
        (
            Target(base_url=LOCAL),
            Metrics(url="http://llm.internal:9090/metrics"),
            r"\[metrics\] url: llm.internal is a",
        ),
        (
            Target(base_url=LOCAL),
            Metrics(urls=(LOCAL, "llm.internal:9")),
            r"\[metrics\] urls: llm.internal is a public",
        ),
    ],
)
def test_every_address_is_looked_at_and_its_key_is_named(target: Target, metrics: Metrics | None, words: str) -> None:
    with pytest.raises(ScenarioError, match=words):
        check(target, metrics=metrics, llm_internal="8.8.8.8")
    check(target, ["LLM.internal"], metrics, llm_internal="8.8.8.8")
    check(target, metrics=metrics, llm_internal="192.168.7.1")


def test_both_public_hosts_have_to_be_confirmed() -> None:
    target = Target(base_url="http://8.8.8.8", proxy="http://[2001:4860::1]:3128")
    with pytest.raises(ScenarioError, match="proxy: 2001:4860::1 is a public host"):
        check(target, ["8.8.8.8"])
    check(target, ["8.8.8.8", "[2001:4860::1]"])


def test_a_name_that_leads_nowhere_cannot_be_measured() -> None:
    with pytest.raises(Unreachable, match=r"base_url: cannot resolve the host name 'vllm': Name or service not known"):
        check(Target(base_url="http://vllm:8000"))


def test_a_name_that_only_the_proxy_knows_has_to_be_confirmed() -> None:
    target = Target(base_url="http://llm.corp", proxy="http://127.0.0.1:3128")
    with pytest.raises(ScenarioError, match="only the proxy can resolve this name"):
        check(target)
    check(target, ["llm.corp"])


def test_pages_that_are_not_read_are_not_looked_at() -> None:
    check(Target(base_url=LOCAL), metrics=Metrics(url="http://8.8.8.8", enabled=False))


@pytest.mark.parametrize("proxy", ["http://", "http://[::1"])
def test_an_address_without_a_host_names_its_key(proxy: str) -> None:
    with pytest.raises(ScenarioError, match=r"\[target\] proxy: "):
        check(Target(base_url=LOCAL, proxy=proxy))
