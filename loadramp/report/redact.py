"""A second line of defence: what looks like a secret never reaches a report, whoever let it into the run. Pure."""

import re

HIDDEN = "***"
_NAME = (
    r"(?:[\w-]*(?:authorization|api[-_]?key|cookie|passwo?r?d|secret|credential)"
    r"|(?:\w+[-_])?(?:access|auth|bearer|api|id|refresh|session)[-_]?token)"
)
_RULES = (
    (re.compile(r"(?<=://)[^\s/@\"']+@"), f"{HIDDEN}@"),
    (re.compile(r"(?i)\b(bearer|basic)\s+[\w.~+/=-]{6,}"), rf"\1 {HIDDEN}"),
    (re.compile(r"\b(?:sk|pk|hf|ghp|xox[bp])[-_][\w-]{6,}"), HIDDEN),
    (
        re.compile(rf"(?i)((?:\b|[\"'])({_NAME})[\"']?\s*[=:]\s*)(\"[^\"\n]*\"|'[^'\n]*'|[^\s,;&}}\"']+)"),
        rf"\1{HIDDEN}",
    ),
)


def redact(text: str) -> str:
    """``text`` without URL passwords, bearer tokens, known key shapes and values of secret-sounding names.

    ``api_key_env = "NAME"`` stays: it names a variable, and the rule's name must end just before the value.
    """
    for pattern, instead in _RULES:
        text = pattern.sub(instead, text)
    return text
