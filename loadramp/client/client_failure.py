"""What is left of a request when the client itself failed on its answer: a record that says so, and no more.

Servers send what nobody has thought of. Every known form is read or refused where it is parsed; this is for the
unknown ones. An exception that nothing else handles ends its own request, never the run.
"""

from loadramp.record.codec import encode
from loadramp.record.sanitize import clean
from loadramp.record.types import Record

_OF_THE_CLIENT = (
    "seq", "step", "due_s", "worker", "sent_s", "connect_s", "asked_input_tokens", "asked_output_tokens", "label",
    "model", "session", "turn", "turns", "stamps",
)  # fmt: skip
"""Fields that do not depend on what the server sent."""
_DETAIL_CHARS = 300


def describe_exception(error: BaseException) -> str:
    """The error detail of a request on which the client failed: the exception's name, then its message."""
    message = clean(str(error))
    words = f"{type(error).__name__}: {message}" if message else type(error).__name__
    return f"the client failed on this answer: {words}"[:_DETAIL_CHARS]


def client_error_record(record: Record, detail: str, end_s: float | None) -> Record:
    """The failed record (``client``) of the request that ``record`` is about, with nothing of its answer: an exception
    may have left any of that half written.

    Args:
        record: whose request it is.
        detail: what happened (``describe_exception``).
        end_s: when, seconds since the run began.
    """
    values = {name: getattr(record, name) for name in _OF_THE_CLIENT}
    return Record(**values, stream_end_s=end_s, status="error", error="client", error_detail=detail)


def line_of(record: Record) -> bytes:
    """The JSON line of ``record``; where it cannot be written, that of its ``client_error_record``."""
    try:
        return encode(record)
    except Exception as error:  # the fence: what a server sent must not end the run, whatever it raises
        return encode(client_error_record(record, describe_exception(error), record.stream_end_s))
