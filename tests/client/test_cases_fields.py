"""Optional fields that servers refuse in their own way (field case 13), and answers with a form of their own."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from records_and_rows import answer
from scripted_server import DONE, FIN, USE, Act, C, Scripted, arrival, client_on, jump, reply, stream
from test_cases_readiness import server_of, surveyed
from test_checks import codes, found, run_of
from test_client_readiness import HEALTHY, ONE, Routed
from test_probe import ANSWER, found_out

from loadramp.client.error_text import describe_error_body
from loadramp.client.readiness import Unreachable
from loadramp.client.request_body import OPTIONAL_FIELDS, request_body, shaped
from loadramp.record.types import Record
from loadramp.scenario.scenario import Target

PLAIN = {"model", "messages", "stream", "max_tokens", "temperature", "stream_options", "response_format", "tools"}
Form = Callable[[list[str], dict[str, Any]], str]


def refusing(status: str, form: Form, known: set[str] = PLAIN, times: int = 999) -> Scripted:
    """A server that answers bodies with other fields than ``known`` in the words of ``form``, so many ``times``."""

    class Refusing(Scripted):
        def take(self, head: bytes, body: bytes, connection: int) -> list[Act]:
            super().take(head, body, connection)
            asked = self.requests[-1].body
            odd = [name for name in asked if name not in known]
            return reply(form(odd, asked).encode(), status) if odd and len(self.requests) <= times else list(ANSWER)

    return Refusing([ANSWER])


def _python(odd: list[str], asked: dict[str, Any]) -> str:
    said = f"InternalServerError: AsyncCompletions.create() got an unexpected keyword argument '{odd[0]}'"
    return json.dumps({"error": {"message": said, "type": None, "code": "500"}})


def _go(odd: list[str], asked: dict[str, Any]) -> str:
    return json.dumps({"error": f'json: unknown field "{odd[0]}"'})


def _plain(odd: list[str], asked: dict[str, Any]) -> str:
    return f"{odd[0]} is not implemented"


def _traceback(odd: list[str], asked: dict[str, Any]) -> str:
    deep = "".join(
        f'  File "/app/layer{i}.py", line {i}, in call\n    return self.inner(**kwargs)\n' for i in range(60)
    )
    return (
        f"Traceback (most recent call last):\n{deep}TypeError: create() got an unexpected keyword argument '{odd[0]}'\n"
    )


def _traceback_in_json(odd: list[str], asked: dict[str, Any]) -> str:
    return json.dumps({"detail": _traceback(odd, asked)})


def _silent(odd: list[str], asked: dict[str, Any]) -> str:
    return "Internal Server Error"


@pytest.mark.parametrize("form", [_python, _go, _plain, _traceback, _traceback_in_json, _silent])
@pytest.mark.parametrize(
    "status",
    ["400 Bad Request", "422 Unprocessable Entity", "500 Internal Server Error", "501 Not Implemented", "409 Conflict"],
)
def test_fields_that_are_refused_are_dropped_whatever_the_status(form: Form, status: str) -> None:
    asked = found_out(refusing(status, form))
    assert sorted(OPTIONAL_FIELDS - asked.fields) == ["ignore_eos", "min_tokens"]
    assert asked.warnings[:2] == ("dropped_ignore_eos", "dropped_min_tokens")
    assert asked.record.ok


@pytest.mark.parametrize("status", ["502 Bad Gateway", "503 Service Unavailable", "403 Forbidden"])
def test_with_any_other_status_the_field_must_be_named(status: str) -> None:
    assert sorted(OPTIONAL_FIELDS - found_out(refusing(status, _python)).fields) == ["ignore_eos", "min_tokens"]
    mute = refusing(status, _silent)
    asked = found_out(mute)
    assert (asked.record.ok, asked.fields, len(mute.requests)) == (False, OPTIONAL_FIELDS, 1)


def test_a_failure_that_repeats_the_whole_request_drops_only_what_really_fails() -> None:
    def echo(odd: list[str], asked: dict[str, Any]) -> str:
        return json.dumps({"error": f"worker died while it served {asked}"})

    passing = found_out(refusing("500 Internal Server Error", echo, times=1))
    assert (passing.record.ok, passing.fields) == (True, OPTIONAL_FIELDS)
    lasting = found_out(refusing("500 Internal Server Error", echo, PLAIN | {"min_tokens"}))
    assert (lasting.record.ok, sorted(OPTIONAL_FIELDS - lasting.fields)) == (True, ["ignore_eos"])


def test_a_server_that_failed_once_keeps_all_fields() -> None:
    asked = found_out(refusing("500 Internal Server Error", _silent, times=1))
    assert (asked.record.ok, asked.fields) == (True, OPTIONAL_FIELDS)


def test_a_run_says_which_fields_are_refused_with_500() -> None:
    class Gateway(Routed):
        def take(self, head: bytes, body: bytes, connection: int) -> list[Act]:
            acts = super().take(head, body, connection)
            odd = [name for name in self.requests[-1].body if name not in PLAIN]
            return reply(_python(odd, {}).encode(), "500 Internal Server Error") if odd else acts

    asked, said = surveyed(Gateway(server_of(HEALTHY, ONE).route))
    assert sorted(OPTIONAL_FIELDS - asked.fields) == ["ignore_eos", "min_tokens"]
    assert "note: the server refuses ignore_eos: answers may be shorter than asked" in said
    assert not any("trying again" in line for line in said)


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (
            "500 Internal Server Error",
            "fails without ignore_eos and min_tokens too, so [target] force_length = false",
        ),
        ("400 Bad Request", "fails without ignore_eos and min_tokens too, so [target] force_length = false"),
        ("502 Bad Gateway", "if ignore_eos or min_tokens is what it refuses: [target] force_length = false"),
    ],
)
def test_a_first_request_that_fails_all_the_same_names_the_way_out(status: str, words: str) -> None:
    broken = reply(b'{"error":"something else"}', status)
    with pytest.raises(Unreachable) as error:
        surveyed(server_of(HEALTHY, ONE, broken))
    assert words in str(error.value)
    with pytest.raises(Unreachable) as error:
        surveyed(server_of(HEALTHY, ONE, broken), force_length=False)
    assert "force_length" not in str(error.value)


def test_a_model_that_is_not_there_has_nothing_to_do_with_the_fields() -> None:
    with pytest.raises(Unreachable) as error:
        surveyed(server_of(HEALTHY, ONE, reply(b'{"error":"no such model"}', "404 Not Found")))
    assert str(error.value).endswith("a first request failed: http_4xx: HTTP 404 Not Found: no such model")


def test_a_first_request_that_a_login_answers_says_so_and_what_to_do() -> None:
    login = reply(b"<html>302 Found</html>", "302 Found", Location="https://sso.example/login?state=1")
    with pytest.raises(Unreachable) as error:
        surveyed(server_of(HEALTHY, ONE, login))
    assert str(error.value).endswith(
        "a first request failed: http_4xx: HTTP 302 Found: redirect to https://sso.example/login; a login or a "
        "gateway, most likely: send what it asks for (--api-key-env, --header), or, if the endpoint has moved, name "
        "that address (--base-url)"
    )


def test_of_a_traceback_the_last_line_is_what_a_server_said() -> None:
    assert (
        describe_error_body(_traceback(["x"], {}).encode())
        == "TypeError: create() got an unexpected keyword argument 'x'"
    )


# -- answers with a form of their own


SCHEMA = {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "object"}}}
TOOL = {"type": "function", "function": {"name": "look", "parameters": {}}}


@pytest.mark.parametrize(
    "own",
    [
        {"response_format": SCHEMA},
        {"response_format": {"type": "json_object"}},
        {"tools": [TOOL]},
        {"tools": [TOOL], "tool_choice": "required"},
        {"functions": [{"name": "look"}]},
        {"guided_json": {"type": "object"}},
        {"guided_regex": "[0-9]+"},
        {"structured_outputs": {"choice": ["a", "b"]}},
        {"grammar": 'root ::= "a"'},
        {"json_schema": {"type": "object"}},
        {"regex": "a+"},
        {"ebnf": 'root ::= "a"'},
        {"nvext": {"guided_choice": ["a"]}},
        {"text": {"format": SCHEMA}},
    ],
)
def test_the_length_of_an_answer_with_a_form_is_not_forced(own: dict[str, Any]) -> None:
    for target, extra in ((Target(body=own), None), (Target(), own)):
        body = json.loads(request_body(target, "m", "hi", 8, extra=extra))
        assert {"ignore_eos", "min_tokens"} & body.keys() == set()
        assert body["max_tokens"] == 8


@pytest.mark.parametrize(
    "own",
    [
        {},
        {"temperature": 0.5},
        {"response_format": {"type": "text"}},
        {"response_format": None},
        {"tools": []},
        {"tools": [TOOL], "tool_choice": "none"},
        {"text": {"verbosity": "low"}},
        {"guided_json": None},
        {"nvext": {"annotations": []}},
    ],
)
def test_the_length_of_any_other_answer_is(own: dict[str, Any]) -> None:
    assert not shaped(own)
    body = json.loads(request_body(Target(body=own), "m", "hi", 8))
    assert (body["ignore_eos"], body["min_tokens"]) == (True, 8)


def test_who_asks_for_both_gets_both() -> None:
    own = {"response_format": SCHEMA, "ignore_eos": True}
    assert json.loads(request_body(Target(body=own), "m", "hi", 8))["ignore_eos"] is True


def one(**options: Any) -> Record:
    """What is recorded of a short answer to a request of four tokens."""
    short = stream((10, C("{")), (20, C("}")), (20, FIN("stop") + USE(9, 2) + DONE))
    body = options.pop("extra", None)

    async def main() -> Record:
        client = client_on(Scripted([short]), **options)
        asked = arrival(output_tokens=4, body=body)
        record = await client.send(asked, client.prepare(asked, "hi"))
        await client.close()
        return record

    return jump(main())


def test_a_record_says_that_its_length_was_not_forced_and_is_not_short() -> None:
    assert one(extra={"response_format": SCHEMA}).warnings == ["length_not_forced"]
    assert one(body={"tools": [TOOL]}).warnings == ["length_not_forced"]
    assert one(body={"tools": [TOOL]}, extra={"tool_choice": "none"}).warnings == ["short_output"]
    assert one(force_length=False, extra={"response_format": SCHEMA}).warnings == []
    assert one().warnings == ["short_output"]


def test_such_answers_are_counted_and_left_out_of_the_lengths_that_were_forced() -> None:
    free = [answer(i, i * 0.1, i * 0.1 + 0.2, [0.02] * 10, asked_output_tokens=60, warnings=["length_not_forced"])
            for i in range(60)]  # fmt: skip
    whole = [answer(60 + i, i * 0.1, i * 0.1 + 0.2, [0.02] * 10, asked_output_tokens=11) for i in range(40)]
    run = run_of([*free, *whole])
    note = "60 of 100 answers have a form of their own (response_format, a grammar, tools): their length was not forced"
    assert found(run, "length_not_forced").message == note
    assert "output_length" not in codes(run)
    cut = [answer(60 + i, i * 0.1, i * 0.1 + 0.2, [0.02] * 10, asked_output_tokens=22) for i in range(40)]
    assert "50 % of the output tokens asked for" in found(run_of([*free, *cut]), "output_length").message
    assert "length_not_forced" not in codes(run_of(whole))
