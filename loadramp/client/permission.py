"""Who may be loaded: every host that a run would connect to, looked at before the first connection.

A name says nothing of where it leads: ``llm.internal`` may be anybody's. What is trusted is an address.
"""

import ipaddress
import socket
from collections.abc import Callable, Iterable, Mapping, Sequence
from urllib.parse import urlsplit

from loadramp.client.endpoint import Endpoint
from loadramp.client.readiness import Unreachable
from loadramp.registry import ScenarioError
from loadramp.scenario.scenario import Metrics, Target

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Resolve = Callable[[str], Iterable[str]]
_PRIVATE_NETWORKS = tuple(
    ipaddress.ip_network(text)
    for text in (
        "0.0.0.0/32", "127.0.0.0/8", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "169.254.0.0/16", "100.64.0.0/10",
        "::/128", "::1/128", "fc00::/7", "fe80::/10",
    )
)  # fmt: skip


def addresses(host: str) -> list[str]:
    """What the system's resolver says. Raises OSError or UnicodeError."""
    return [str(info[4][0]) for info in socket.getaddrinfo(host, None)]


def check_hosts(
    endpoint: Endpoint,
    target: Target,
    permitted: Sequence[str],
    metrics: Metrics | None = None,
    resolve: Resolve = addresses,
) -> None:
    """Refuse to connect to a public host unless it is named in ``permitted``.

    Args:
        endpoint: what is loaded.
        target: its table; its ``proxy`` carries the load.
        permitted: names or addresses that the user has repeated, brackets allowed.
        metrics: pages that are read once a second, too.
        resolve: name to addresses; raises OSError where there are none.

    Raises:
        ScenarioError: a host is public, or nobody can tell because only the proxy knows its name.
        Unreachable: the name of a host leads nowhere.
    """
    allowed = {_bare(name) for name in permitted}
    for host, option in _hosts(endpoint, target, metrics).items():
        if _bare(host) in allowed:
            continue
        proxied = bool(target.proxy) and option == "base_url"
        try:
            private = is_private(host, resolve)
        except (OSError, UnicodeError) as error:
            why = getattr(error, "strerror", None) or str(error)
            if not proxied:
                raise Unreachable(f"{_KEYS[option]}: cannot resolve the host name {host!r}: {why}") from None
            raise ScenarioError(
                f"{host}: only the proxy can resolve this name, so it may be a public host: a load test needs its "
                f"owner's permission; if you have it, add --yes-i-may-load-test {host}"
            ) from None
        if not private:
            raise ScenarioError(
                f"{_KEYS[option]}: {host} is a public host: a load test needs its owner's permission; "
                f"if you have it, add --yes-i-may-load-test {host}"
            )


_KEYS = {"base_url": "[target] base_url", "proxy": "[target] proxy", "url": "[metrics] url", "urls": "[metrics] urls"}


def _hosts(endpoint: Endpoint, target: Target, metrics: Metrics | None) -> Mapping[str, str]:
    """Each host once, with the key that names it."""
    hosts = {endpoint.host: "base_url"}
    if target.proxy:
        hosts.setdefault(_host_of(target.proxy, "[target] proxy"), "proxy")
    if metrics is not None and metrics.enabled:
        for key, urls in (("url", [metrics.url] if metrics.url else []), ("urls", metrics.urls)):
            for url in urls:
                hosts.setdefault(_host_of(url, f"[metrics] {key}"), key)
    return hosts


def _host_of(url: str, where: str) -> str:
    try:
        host = urlsplit(url if "://" in url else f"http://{url}").hostname
    except ValueError as error:
        raise ScenarioError(f"{where}: not a URL: {error}") from None
    if not host:
        raise ScenarioError(f"{where}: no host; write http://HOST:PORT")
    return host


def _bare(host: str) -> str:
    return host.strip("[]").rstrip(".").lower()


def is_private(host: str, resolve: Resolve) -> bool:
    """Whether load on ``host`` stays within one's own network: a loopback, private, link-local or carrier-grade NAT
    address, or a name all of whose addresses are such.

    Args:
        host: name or address, brackets allowed.
        resolve: name to addresses; raises OSError when there are none.

    Raises:
        OSError, UnicodeError: what ``resolve`` raises.
    """
    name = _bare(host)
    address = _address(name)
    if address is not None:
        return _private(address)
    if name == "localhost":
        return True
    addresses = [_address(text) for text in resolve(name)]
    return bool(addresses) and all(address is not None and _private(address) for address in addresses)


def _address(text: str) -> Address | None:
    """An address in any notation that a socket takes (``127.1``, ``2130706433``, ``fe80::1%eth0``); None for a name."""
    try:
        return ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        pass
    try:
        return ipaddress.IPv4Address(socket.inet_aton(text))
    except (OSError, UnicodeError):
        return None


def _private(address: Address) -> bool:
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    return any(address in network for network in _PRIVATE_NETWORKS if network.version == address.version)
