"""What a request says: given messages, given text or text made up from seeds, with images, and what was said before it.

Pure. The answer is what the measuring client sends as it is: text, chat messages, or token ids.
"""

import base64
import hashlib
import struct
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from loadramp.record.types import Calibration, Prompt
from loadramp.workload.prompts.vocabulary import render, render_ids, tag_of

Content = str | list[Any]
"""Text; chat messages (a list of mappings); or token ids (a list of numbers)."""
_PARTS = {"text": "input_text", "image_url": "input_image"}
TILES = 8
_SIGNATURE = b"\x89PNG\r\n\x1a\n"


def content_of(prompt: Prompt, calibration: Calibration, api: str = "chat") -> Content:
    """The content of a request that opens a conversation.

    Args:
        prompt: what is asked.
        calibration: how made-up text is written.
        api: ``responses`` calls the parts of a message otherwise.
    """
    if prompt.messages is not None:
        messages = _tagged(prompt.messages, prompt.tag)
        return _dressed(messages, prompt, api) if prompt.images or api == "responses" else messages
    if calibration.ids and prompt.text is None and not prompt.images and not prompt.following:
        return render_ids(prompt.segments, calibration)
    text = prompt.text if prompt.text is not None else render(prompt.segments, calibration)
    if prompt.tag is not None:
        text = f"{tag_of(prompt.tag)}\n{text}"
    return _dressed([{"role": "user", "content": text}], prompt, api) if prompt.images else text


def next_content(
    before: Content, answer: str, prompt: Prompt, calibration: Calibration, api: str = "chat"
) -> list[Any]:
    """The content of a later turn: everything said so far, the answer to it, and the new message.

    A prompt that brings messages of its own brings all of them: a conversation as the file has it.
    """
    if prompt.messages is not None:
        return list(content_of(prompt, calibration, api))
    text = prompt.text if prompt.text is not None else render(prompt.segments, calibration, whole=False)
    new = _dressed([{"role": "user", "content": text}], prompt, api)
    return [*as_messages(before), {"role": "assistant", "content": answer}, *new]


def as_messages(content: Content) -> list[Any]:
    """Text as the messages it stands for."""
    return [{"role": "user", "content": content}] if isinstance(content, str) else list(content)


def _tagged(messages: Sequence[Mapping[str, Any]], tag: int | None) -> list[Any]:
    """The tag goes before the first message's text, so that what rows have in common stays in common."""
    first, *rest = messages
    if tag is None:
        return [first, *rest]
    words, content = tag_of(tag), first.get("content")
    if isinstance(content, list):
        content = [{"type": "text", "text": words}, *content]
    elif isinstance(content, str):
        content = f"{words}\n{content}"
    return [{**first, "content": content}, *rest]


def _dressed(messages: Sequence[Mapping[str, Any]], prompt: Prompt, api: str) -> list[Any]:
    """Images go behind the last message's text; the responses API has its own names for parts."""
    *before, last = messages
    if prompt.images:
        content = last.get("content")
        parts = list(content) if isinstance(content, list) else [{"type": "text", "text": content or ""}]
        parts += [{"type": "image_url", "image_url": {"url": data_url(*image)}} for image in prompt.images]
        last = {**last, "content": parts}
    whole = [*before, last]
    return [_renamed(message) for message in whole] if api == "responses" else whole


def _renamed(message: Mapping[str, Any]) -> Mapping[str, Any]:
    content = message.get("content")
    if not isinstance(content, list):
        return message
    return {**message, "content": [_part(part) for part in content]}


def _part(part: Any) -> Any:
    if not isinstance(part, Mapping) or part.get("type") not in _PARTS:
        return part
    renamed = {**part, "type": _PARTS[part["type"]]}
    image = part.get("image_url")
    if isinstance(image, Mapping):
        renamed["image_url"] = image.get("url")
    return renamed


def png(seed: int, width: int, height: int) -> bytes:
    """A PNG of ``width`` by ``height`` pixels: 8 by 8 tiles of a colour each, a few kilobytes whatever its size."""
    letters = hashlib.shake_128(seed.to_bytes(16, "little")).digest(TILES * TILES * 3)
    tiles = np.frombuffer(letters, dtype=np.uint8).reshape(TILES, TILES, 3)
    columns = np.arange(width) * TILES // width
    rows = np.arange(height) * TILES // height
    pixels = tiles[rows][:, columns].reshape(height, width * 3)
    lines = np.hstack((np.zeros((height, 1), dtype=np.uint8), pixels))  # filter type 0 before every line
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    packed = zlib.compress(lines.tobytes(), 1)
    return _SIGNATURE + _chunk(b"IHDR", header) + _chunk(b"IDAT", packed) + _chunk(b"IEND", b"")


def data_url(seed: int, width: int, height: int) -> str:
    """The picture as a ``data:`` URL, as chat messages carry it."""
    return "data:image/png;base64," + base64.b64encode(png(seed, width, height)).decode()


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
