"""Where requests go and with which secrets: one base URL in any of its forms becomes host, paths and headers.

What is secret in it leaves only through ``headers``; ``redact`` takes it out of any text.
"""

import base64
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from loadramp.registry import ScenarioError
from loadramp.scenario.scenario import Target
from loadramp.workload import placeholders

_PATHS = {"chat": "/chat/completions", "completions": "/completions", "responses": "/responses"}
_SUFFIXES = (*_PATHS.values(), "/models", "/health", "/metrics")
_VERSION = re.compile(r"v\d+[a-z0-9]*")
_SECRET_NAME = re.compile(r"key|token|secret|pass|auth|sig|cookie|cred|session|code", re.IGNORECASE)
SHORTEST = 4
"""Of what stands beside a placeholder in a secret header: less is no secret, and would be found everywhere."""
_LONG = 12  # a header or query value this long is taken for a secret whatever its name
LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
_PLAIN_HEADERS = {"accept", "accept-encoding", "accept-language", "content-type", "user-agent", "host", "x-request-id"}


@dataclass(slots=True, frozen=True, repr=False)
class Endpoint:
    """An OpenAI-compatible server. Paths are ready for a request line: percent-encoded, with the URL's query."""

    tls: bool
    host: str
    """As written, without brackets; an internationalised name in its ASCII form."""
    port: int
    base: str
    """Path up to and including ``/v1``, no slash at its end."""
    query: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Sent with every request, control calls included: authorization, then those of ``[target] headers``."""
    secrets: tuple[str, ...] = ()
    templates: Mapping[str, str] = field(default_factory=dict)
    """Those of the headers whose values differ by request (``workload.placeholders``)."""

    def __repr__(self) -> str:
        return f"Endpoint({self.url!r})"

    @property
    def authority(self) -> str:
        """Host and port for a Host header or URL; the scheme's own port is left out."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.tls else 80) else f"{host}:{self.port}"

    @property
    def url(self) -> str:
        """The base URL fit to print: no user, no password, no query."""
        return f"{'https' if self.tls else 'http'}://{self.authority}{self.base}"

    @property
    def root(self) -> str:
        """The server's own path: ``base`` without its version."""
        head, _, last = self.base.rpartition("/")
        return head if _VERSION.fullmatch(last) else self.base

    def path(self, api: str) -> str:
        """``chat``, ``completions``, ``responses``, ``models``, ``health`` or ``metrics``."""
        plain = f"{self.root}/{api}" if api in {"health", "metrics"} else self.base + _PATHS.get(api, f"/{api}")
        return f"{plain}?{self.query}" if self.query else plain

    def shown(self, api: str) -> str:
        """The URL of an API fit to print."""
        return f"{'https' if self.tls else 'http'}://{self.authority}{self.path(api).partition('?')[0]}"

    @property
    def server(self) -> str:
        """The URL that paths beside the API (``/health``, ``/version``, ``/metrics``) are below, without a query."""
        return f"{'https' if self.tls else 'http'}://{self.authority}{self.root}"

    def address(self, api: str) -> str:
        """The whole URL of an API, query included: for sending, not for printing."""
        return f"{'https' if self.tls else 'http'}://{self.authority}{self.path(api)}"

    def redact(self, text: str) -> str:
        """``text`` without any secret: the key, passwords, secret header and query values, user info in URLs."""
        text = re.sub(r"(?<=://)[^/@\s\"']+@", "***@", text)
        for secret in self.secrets:
            if len(secret) < 6:  # too short to be taken out of the middle of a word
                text = re.sub(rf"(?<![A-Za-z0-9]){re.escape(secret)}(?![A-Za-z0-9])", "***", text)
            else:
                text = text.replace(secret, "***")
        return text


def endpoint_of(target: Target, env: Mapping[str, str] | None = None) -> Endpoint:
    """The endpoint that ``target`` names.

    Args:
        target: ``base_url`` with or without ``/v1``, a slash, or the path of one API at its end; user and password in
            it become Basic authorization and win over the API key; ``[target] headers`` win over both.
        env: environment variables (default: this process's): ``OPENAI_BASE_URL`` when ``base_url`` is empty, and
            the API key under the name ``target.api_key_env``. No key, no header.

    Raises:
        ScenarioError: no base URL, not http(s), no host, a bad port, or a header that cannot be sent.
    """
    env = os.environ if env is None else env
    written = (target.base_url or env.get("OPENAI_BASE_URL", "")).strip()
    if not written:
        raise ScenarioError("[target] base_url: missing; write http://HOST:PORT, or set OPENAI_BASE_URL")
    scheme, host, port, path, query, user = _parts(written)
    placeholders.check(target.headers, target.body)
    headers, secrets = _headers(target, env, user)
    templates = {name: value for name, value in headers.items() if placeholders.used_in(value)}
    headers |= {name: placeholders.filled(value, placeholders.NO_SESSION) for name, value in templates.items()}
    secrets |= {value for name, value in parse_qsl(query) if _SECRET_NAME.search(name) or len(value) >= _LONG}
    if target.proxy:
        try:
            proxy = urlsplit(target.proxy)
        except ValueError as error:
            raise ScenarioError(f"[target] proxy: not a URL: {error}") from None
        name, password = (unquote(part or "") for part in (proxy.username, proxy.password))
        secrets |= {name, password}
        if name or password:
            secrets |= {f"{name}:{password}", _basic(f"{name}:{password}")}
    forms = {form for secret in secrets if secret for form in (secret, quote(secret, safe=""))}
    return Endpoint(
        tls=scheme == "https",
        host=host,
        port=port,
        base=_base(path),
        query=query,
        headers=headers,
        secrets=tuple(sorted(forms, key=len, reverse=True)),  # longest first: one may hold another
        templates=templates,
    )


def _basic(pair: str) -> str:
    """``NAME:PASSWORD`` as Basic authorization writes it."""
    return base64.b64encode(pair.encode()).decode()


def _parts(written: str) -> tuple[str, str, int, str, str, str]:
    """Scheme, host, port, path, query and user info (as written, percent-encoded)."""
    whole = written if "://" in written else f"http://{written}"
    try:
        url = urlsplit(whole)
        port = url.port
        host = url.hostname or ""
        if ":" not in host:  # a name, not an IPv6 address
            host = host.encode("idna").decode()
    except (ValueError, UnicodeError) as error:
        raise ScenarioError(f"[target] base_url: not a URL: {error}") from None
    if url.scheme not in {"http", "https"}:
        raise ScenarioError(f"[target] base_url: scheme {url.scheme!r}; allowed: http, https")
    if not host or port == 0:
        raise ScenarioError("[target] base_url: no host, or port 0; write http://HOST:PORT")
    user = url.netloc.rpartition("@")[0]
    path = quote(url.path, safe="/%:@!$&'()*+,;=~")
    return url.scheme, host, port or (443 if url.scheme == "https" else 80), path, url.query, user


def _base(path: str) -> str:
    """CF: ``/``, ``/v1``, ``/v1/``, ``//v1``, ``/proxy/v1/`` and ``/v1/chat/completions`` all lead to ``.../v1``.

    A path that already has a version, or that named an API by its whole address, is kept as it is.
    """
    base = re.sub("/{2,}", "/", path).rstrip("/")
    for suffix in _SUFFIXES:
        if base.endswith(suffix):
            explicit = suffix in _PATHS.values()
            base = base.removesuffix(suffix).rstrip("/")
            break
    else:
        explicit = False
    versioned = any(_VERSION.fullmatch(part) for part in base.split("/"))
    return base if versioned or explicit else f"{base}/v1"


def _headers(target: Target, env: Mapping[str, str], user: str) -> tuple[dict[str, str], set[str]]:
    headers, secrets = {}, set()
    key = env.get(target.api_key_env, "").strip() if target.api_key_env else ""
    if user:
        name, _, password = (unquote(part) for part in user.partition(":"))
        token = _basic(f"{name}:{password}")
        headers["Authorization"] = f"Basic {token}"
        secrets |= {user, f"{name}:{password}", password, token}
    elif key:
        headers["Authorization"] = f"Bearer {key}"
    secrets.add(key)
    for name, value in target.headers.items():
        if any(known.lower() == name.lower() for known in headers):
            headers = {known: kept for known, kept in headers.items() if known.lower() != name.lower()}
        headers[name] = value
        secret = _SECRET_NAME.search(name) or len(value) >= _LONG
        if secret and name.lower() not in _PLAIN_HEADERS:
            whole = not placeholders.used_in(value)
            for part in (
                [value] if whole else [literal for literal in placeholders.literals(value) if len(literal) >= SHORTEST]
            ):
                secrets |= {part, part.rpartition(" ")[2], *re.findall(r"=([^;,\s]{4,})", part)}
    for name, value in headers.items():
        if name.lower() in {"content-length", "transfer-encoding"}:
            raise ScenarioError(f"[target] headers: {name} is written by the client, which alone knows the body")
        if not re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", name):
            raise ScenarioError(f"[target] headers: {name!r} is not a header name")
        if not re.fullmatch(r"[\t\x20-\x7e]*", value):
            known = any(header.lower() == name.lower() for header in target.headers)
            where = f"[target] headers {name}" if known or user else f"the key in {target.api_key_env}"
            raise ScenarioError(f"{where}: a header has no line ends, control characters or letters beyond ASCII")
    return headers, secrets
