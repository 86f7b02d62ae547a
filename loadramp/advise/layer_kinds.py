"""The kind of each layer of a decoder, from the ways in which configurations spell it. Pure.

A reader for each way; the first that finds its key tells. Rules are those of the model's own configuration class.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from loadramp.advise.architectures import (
    ASIDE,
    COUNTS,
    FULL,
    INDEXES,
    KEEPS,
    LETTERS,
    LISTED_COUNTS,
    LISTS,
    NONE,
    NUMBERS,
    SHARES,
    SPEAKS,
    STATE,
    STATES,
    UNDERSTOOD,
    WINDOW,
    Config,
    unclear,
)
from loadramp.registry import ScenarioError
from loadramp.units import plural


def kinds_of(config: Config, count: int) -> tuple[set[str], list[str]]:
    """(keys that told it, the kind of each layer). All are FULL where no key tells of kinds."""
    for reader in (_blocks, _listed, _lettered, _numbered, _indexed, _kimi, _periodic, _interval, _flash):
        kinds = reader(config, count)
        if kinds is not None:
            return kinds
    return set(), [FULL] * count


Found = tuple[set[str], list[str]] | None


def _blocks(config: Config, count: int) -> Found:
    """block_configs: one object a layer (Nemotron-NAS, DeciLM, Puzzle)."""
    blocks = config.get("block_configs")
    if not blocks:
        return None
    if not isinstance(blocks, list) or len(blocks) < count or not all(isinstance(block, Mapping) for block in blocks):
        raise unclear("block_configs", f"expected an object for each of the {plural(count, 'layer')}")
    return {"block_configs"}, [_block(block) for block in blocks[:count]]


def _block(block: Config) -> str:
    attention = block.get("attention")
    if isinstance(attention, Mapping):
        if attention.get("no_op") or attention.get("replace_with_linear") or attention.get("mamba"):
            return NONE
        return WINDOW if attention.get("window_length") or attention.get("window_size") else FULL
    kind = block.get("block_type", block.get("type", block.get("layer_type")))
    if kind is None:
        return NONE
    return _kind(str(kind), "block_configs")


def _listed(config: Config, count: int) -> Found:
    """A name for each layer; block_types (RecurrentGemma) repeats."""
    for name in LISTS:
        kinds = config.get(name)
        if not isinstance(kinds, (list, tuple)) or not kinds:
            continue
        extra = config.get("num_nextn_predict_layers")
        if name.lstrip("_") == "block_types":
            kinds = [kinds[i % len(kinds)] for i in range(count)]
        elif len(kinds) == count + (extra if isinstance(extra, int) else 0):
            kinds = kinds[:count]
        elif len(kinds) != count:
            raise unclear(name, f"tells of {plural(len(kinds), 'layer')}, num_hidden_layers of {count}")
        return {name}, [_kind(str(word), name) for word in kinds]
    return None


def _kind(word: str, key: str) -> str:
    """A layer kind that is not known to be attention is none; one that may be is asked for."""
    plain = word.lower().replace("-", "_").strip()
    if plain in KEEPS:
        return KEEPS[plain]
    if ("attn" in plain or "attention" in plain or "sparse" in plain) and not STATE.search(plain):
        raise unclear(key, f"{word!r} is not known")
    return NONE


def _letters(pattern: str) -> str:
    """Pipeline borders ("|") are no layers; what follows "/" predicts several tokens and is not loaded."""
    return pattern.split("/", maxsplit=1)[0].replace("|", "").strip()


def _lettered(config: Config, count: int) -> Found:
    """A letter for each layer (Nemotron-H), or a pattern of L and G that repeats (EXAONE 4)."""
    name = next((n for n in ("hybrid_override_pattern", "hybrid_layer_pattern", "hybrid_pattern", "layer_pattern")
                 if isinstance(config.get(n), str) and config.get(n)), None)  # fmt: skip
    if name is not None:
        letters = _letters(str(config[name]))
        if len(letters) != count:
            raise unclear(name, f"tells of {plural(len(letters), 'layer')}, num_hidden_layers of {count}")
        odd = sorted(set(letters) - set(LETTERS))
        if odd:
            raise unclear(name, f"{odd[0]!r} is not known")
        return {name}, [LETTERS[letter] for letter in letters]
    pattern = config.get("sliding_window_pattern")
    if not isinstance(pattern, str) or not pattern:
        return None
    if set(pattern) - {"L", "G"}:
        raise unclear("sliding_window_pattern", f"expected letters L and G; got {pattern!r}")
    kinds = [WINDOW if pattern[i % len(pattern)] == "L" else FULL for i in range(count)]
    return {"sliding_window_pattern"}, [*kinds[:-1], FULL]


def _numbered(config: Config, count: int) -> Found:
    for name, meaning in NUMBERS.items():
        numbers = config.get(name)
        if not isinstance(numbers, list) or not numbers:
            continue
        if len(numbers) < count or any(number not in meaning for number in numbers):
            raise unclear(name, f"expected 0 or 1 for each of the {plural(count, 'layer')}")
        return {name}, [meaning[number] for number in numbers[:count]]
    return None


def _indexed(config: Config, count: int) -> Found:
    for name in INDEXES:
        if isinstance(config.get(name), list):
            return {name}, _at(config[name], count, 0, name)
    return None


def _at(places: Sequence[Any], count: int, first: int, name: str) -> list[str]:
    """FULL at ``places``, which count from ``first``."""
    if any(isinstance(i, bool) or not isinstance(i, int) or not first <= i < count + first for i in places):
        raise unclear(name, f"expected layers from {first} to {count - 1 + first}; got {list(places)!r}")
    return [FULL if i + first in places else NONE for i in range(count)]


def _kimi(config: Config, count: int) -> Found:
    """linear_attn_config with lists that count from 1 (Kimi Linear)."""
    attention = config.get("linear_attn_config")
    if not isinstance(attention, Mapping):
        return None
    full, linear = attention.get("full_attn_layers"), attention.get("kda_layers", attention.get("linear_attn_layers"))
    if not isinstance(full, list):
        raise unclear("linear_attn_config", "no full_attn_layers")
    if isinstance(linear, list) and sorted([*full, *linear]) != list(range(1, count + 1)):
        raise unclear("linear_attn_config", f"its lists do not tell of layers 1 to {count} once each")
    return {"linear_attn_config"}, _at(full, count, 1, "linear_attn_config.full_attn_layers")


def _periodic(config: Config, count: int) -> Found:
    """attn_layer_period and attn_layer_offset (Jamba); Zamba counts from its fourth layer on."""
    if config.get("attn_layer_period") is None:
        return None
    period, offset = step_of(config, "attn_layer_period"), config.get("attn_layer_offset", 0)
    used = {"attn_layer_period", "attn_layer_offset"}
    if not isinstance(offset, int) or not 0 <= offset < period:
        raise unclear("attn_layer_offset", f"expected 0 to below the period, {period}; got {offset!r}")
    if config.get("model_type") == "zamba":
        return used, [NONE, NONE, FULL, *(FULL if i % period == offset else NONE for i in range(count - 3))][:count]
    return used, [FULL if i % period == offset else NONE for i in range(count)]


def _interval(config: Config, count: int) -> Found:
    """Every n-th layer is attention: full_attention_interval (Qwen3-Next), layer_group_size (Ling), mamba_step."""
    if config.get("full_attention_interval") is not None:
        every = step_of(config, "full_attention_interval")
        kinds = [FULL if (i + 1) % every == 0 else NONE for i in range(count)]
        if config.get("model_type") == "olmo_hybrid" and FULL not in kinds:
            kinds[-1] = FULL
        return {"full_attention_interval"}, kinds
    if config.get("layer_group_size") is not None:
        every = step_of(config, "layer_group_size")
        whole = count // every * every
        return {"layer_group_size"}, [FULL if (i + 1) % every == 0 or i >= whole else NONE for i in range(count)]
    if config.get("mamba_step") is not None:
        every = step_of(config, "mamba_step")
        return {"mamba_step"}, [FULL if i % every == every // 2 else NONE for i in range(count)]
    return None


def _flash(config: Config, count: int) -> Found:
    """Phi-4-mini-flash (SambaY): even layers are Mamba; odd ones of the first half have a window, the next keeps all,
    and those after it read its keys and values."""
    if config.get("model_type") != "phi4flash" or config.get("mb_per_layer") != 2:
        return None
    half = count // 2
    odd = {i: WINDOW if i < half else FULL for i in range(1, count, 2) if i <= half + 1}
    return {"mb_per_layer"}, [odd.get(i, NONE) for i in range(count)]


def step_of(config: Config, name: str) -> int:
    value = config[name]
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise unclear(name, f"expected a whole number of at least 1; got {value!r}")
    return value


def ask_for_others(config: Config, used: set[str], count: int, known: bool) -> None:
    """Raise for a key that tells of layers of other kinds and that nothing here has read."""
    for name, value in config.items():
        if name in used or name in UNDERSTOOD or _says_nothing(value):
            continue
        if SHARES.search(name):
            raise unclear(name, "it tells of layers that share keys and values, and is not understood")
        if known:
            continue
        speaks = SPEAKS.search(name) or _for_each(value, count)
        if STATES.match(name) or (speaks and not ASIDE.search(name)):
            raise unclear(name, "it tells of layers that may keep no keys and values, and is not understood")


def _says_nothing(value: Any) -> bool:
    return value is None or value is False or value in (0, "", [], {}, "none", "auto")


def _for_each(value: Any, count: int) -> bool:
    """A list with one word or small number a layer, not all of them alike."""
    if not isinstance(value, list) or len(value) != count or count < 4:
        return False
    if not all(isinstance(item, (str, int)) or item is None for item in value):
        return False
    return 1 < len(Counter(map(str, value))) <= 4


def count_of(config: Config) -> int:
    """Number of layers: told, or the length of the list or pattern that tells of each.

    Raises:
        ScenarioError: none is told, or it is no whole number.
    """
    for name in COUNTS:
        value = config.get(name)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ScenarioError(f"config.json: {name}: expected a whole number; got {value!r}")
        twice = name == "num_layers" and str(config.get("model_type")).startswith("longcat_flash")
        return 2 * value if twice else value  # its layers have attention twice
    for name in LISTED_COUNTS:
        if config.get(name):
            return len(_letters(config[name]) if isinstance(config[name], str) else config[name])
    raise ScenarioError("config.json: no num_hidden_layers: is this the config of a decoder model?")


def has_count(config: Config) -> bool:
    """Whether a config tells the number of layers, by a number or by a list."""
    return any(config.get(name) is not None for name in (*COUNTS, *LISTED_COUNTS))
