"""Pictures out of numbers: the same seed gives the same PNG in every process. Pure."""

from __future__ import annotations

import base64
import hashlib
import struct
import zlib

import numpy as np

TILES = 8
_SIGNATURE = b"\x89PNG\r\n\x1a\n"


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
