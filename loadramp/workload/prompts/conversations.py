"""Conversations that people had with assistants, as the public sets store them, to sessions or first requests. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

from msgspec import Meta

from loadramp.record.types import Prompt
from loadramp.workload.prompts.json_forms import objects_of
from loadramp.workload.prompts.lines import RowCounts
from loadramp.workload.prompts.text_files import MOST_ROWS, KeptRows, Rows, Texts

History = Literal["answers", "file"]
PerToken = Annotated[float, Meta(gt=0)]
Tokens = Annotated[int, Meta(ge=1)]
ROLES = {
    "human": "user", "user": "user", "gpt": "assistant", "chatgpt": "assistant", "bing": "assistant",
    "bard": "assistant", "assistant": "assistant", "model": "assistant", "system": "system",
}  # fmt: skip
LISTS = ("conversations", "conversation", "messages", "turns")


@dataclass(slots=True, frozen=True)
class Wanted:
    """Which conversations are taken, and how much of each."""

    turns: int
    history: History
    output_tokens: int | None
    chars_per_token: float
    min_tokens: int
    max_input_tokens: int | None
    max_output_tokens: int | None
    max_context_tokens: int | None

    def tokens(self, text: str) -> int:
        """About how many tokens ``text`` has."""
        return max(1, round(len(text) / self.chars_per_token))


def read_conversations(
    chunks: Iterable[bytes],
    file: str,
    *,
    turns: Annotated[int, Meta(ge=0)] = 1,
    history: History = "answers",
    output_tokens: Tokens | None = None,
    chars_per_token: PerToken = 4.0,
    min_tokens: Annotated[int, Meta(ge=0)] = 4,
    max_input_tokens: Tokens | None = None,
    max_output_tokens: Tokens | None = None,
    max_context_tokens: Tokens | None = None,
    max_rows: Rows = MOST_ROWS,
) -> Texts:
    """ShareGPT, LMSYS, WildChat, UltraChat and MT-Bench rows, in one JSON array or as JSON lines.

    Args:
        chunks: the file's bytes.
        file: how messages call it.
        turns: how many turns of each to take at most; 0: all.
        history: what later turns carry as earlier answers: those the model gives, or those of the file.
        output_tokens: length to ask of every answer; None: that of the file's answer.
        chars_per_token: how text is turned into tokens where only text is known.
        min_tokens: a first message or answer below it leaves the row out.
        max_input_tokens: a first message above it leaves the row out.
        max_output_tokens: longer answers are cut to it.
        max_context_tokens: a session ends before the turn that exceeds it.
        max_rows: rows behind so many usable ones are left out.

    Raises:
        ScenarioError: no row can be used.
    """
    tally = RowCounts(file, "conversations")
    kept = KeptRows(tally, max_rows)
    wanted = Wanted(
        turns, history, output_tokens, chars_per_token, min_tokens, max_input_tokens, max_output_tokens,
        max_context_tokens,
    )  # fmt: skip
    begun_by_assistant = 0
    for place, row in objects_of(chunks, tally):
        try:
            talk = talk_of(row)
            first = next((i for i, (role, _) in enumerate(talk) if role == "user"), len(talk))
            begun_by_assistant += any(role == "assistant" for role, _ in talk[:first])
            opening = _session(talk, first, wanted)
        except ValueError as error:
            tally.skip(place, str(error))
            continue
        if isinstance(opening, str):
            tally.leave(opening)
        else:
            kept.add(opening)
    if begun_by_assistant:
        tally.notes.append(f"{begun_by_assistant:,} began with an answer, which is dropped")
    return kept.texts()


def talk_of(row: Any) -> list[tuple[str, str]]:
    """(role, text) of every message of a row, in order; roles are ``user``, ``assistant``, ``system``.

    Raises:
        ValueError: the row holds no conversation, in words.
    """
    if not isinstance(row, Mapping):
        raise ValueError("no object")
    given = next((row[key] for key in LISTS if isinstance(row.get(key), list)), None)
    if given is None:
        raise ValueError("no conversation")
    talk: list[tuple[str, str]] = []
    for turn in given:
        if isinstance(turn, str):  # only what is asked, turn by turn
            talk += [("user", turn), ("assistant", "")]
        elif isinstance(turn, Mapping) and ("human" in turn or "assistant" in turn) and "role" not in turn:
            talk += [("user", _words(turn.get("human"))), ("assistant", _words(turn.get("assistant")))]
        elif isinstance(turn, Mapping):
            name = str(turn.get("from", turn.get("role", ""))).lower()
            if name not in ROLES:
                raise ValueError("an unknown speaker")
            talk.append((ROLES[name], _words(turn.get("value", turn.get("content")))))
        else:
            raise ValueError("a message that is none")
    return talk


def _words(value: Any) -> str:
    """The text of a message; parts that are no text (images) are not taken."""
    if isinstance(value, list):
        value = "".join(part.get("text", "") for part in value if isinstance(part, Mapping))
    if not isinstance(value, str) or not value.strip():
        raise ValueError("an empty message")
    return value


def _session(talk: list[tuple[str, str]], first: int, wanted: Wanted) -> Prompt | str:
    """The conversation from its first question on, or why it is left out."""
    system = [text for role, text in talk[:first] if role == "system"]
    pairs = _pairs(talk[first:])
    if not pairs:
        raise ValueError("nobody asks")
    if wanted.turns:
        pairs = pairs[: wanted.turns]
    question, answer = pairs[0]
    if not answer and wanted.output_tokens is None:
        raise ValueError("no answer")
    opening = wanted.tokens("\n".join([*system, question]))
    if opening < wanted.min_tokens or (answer and wanted.tokens(answer) < wanted.min_tokens):
        return "shorter than min_tokens"
    if wanted.max_input_tokens is not None and opening > wanted.max_input_tokens:
        return "longer than max_input_tokens"
    before: list[Mapping[str, Any]] = [{"role": "system", "content": text} for text in system]
    chain: list[Prompt] = []
    context = sum(wanted.tokens(text) for text in system)
    for question, answer in pairs:
        length = _length(answer, wanted)
        if length is None:
            break  # the file does not say how long the answer is to be
        context += wanted.tokens(question) + length
        if wanted.max_context_tokens is not None and context > wanted.max_context_tokens:
            break
        asked = {"role": "user", "content": question}
        if before and (wanted.history == "file" or not chain):
            chain.append(Prompt(output_tokens=length, messages=(*before, asked)))
        else:
            chain.append(Prompt(output_tokens=length, text=question))
        before += [asked, {"role": "assistant", "content": answer or ""}]
    if not chain:
        return "longer than max_context_tokens"
    return replace(chain[0], following=tuple(chain[1:]))


def _length(answer: str | None, wanted: Wanted) -> int | None:
    if wanted.output_tokens is not None:
        return wanted.output_tokens
    if not answer:
        return None
    tokens = wanted.tokens(answer)
    return tokens if wanted.max_output_tokens is None else min(tokens, wanted.max_output_tokens)


def _pairs(talk: list[tuple[str, str]]) -> list[tuple[str, str | None]]:
    """(question, answer); messages of one speaker in a row are one message."""
    pairs: list[tuple[str, str | None]] = []
    for role, text in talk:
        if role == "user" and pairs and pairs[-1][1] is None:
            pairs[-1] = (f"{pairs[-1][0]}\n\n{text}", None)
        elif role == "user":
            pairs.append((text, None))
        elif role == "assistant" and pairs:
            question, answer = pairs[-1]
            pairs[-1] = (question, text if answer is None else f"{answer}\n\n{text}")
    return pairs
