"""A random Llama of 1.4 million parameters with a byte-level BPE tokenizer, made here: no download, no meaning.

usage: python make_model.py DIRECTORY   (in the environment that holds torch, transformers and tokenizers)
"""

import sys
import sysconfig
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

SPECIAL = ["<pad>", "<bos>", "<eos>", "<turn>"]
TEMPLATE = (
    "{% for message in messages %}<turn>{{ message['role'] }}: {{ message['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}<turn>assistant: {% endif %}"
)


def tokenizer() -> PreTrainedTokenizerFast:
    """Trained on the sources of Python's standard library: any text with a few thousand distinct words would do."""
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    sources = sorted(str(path) for path in Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))[:120]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=4096, special_tokens=SPECIAL, initial_alphabet=alphabet, show_progress=False
    )
    bpe.train(sources, trainer)
    fast = PreTrainedTokenizerFast(
        tokenizer_object=bpe, bos_token="<bos>", eos_token="<eos>", pad_token="<pad>", model_max_length=2048
    )
    fast.chat_template = TEMPLATE
    return fast


def main(out: str) -> None:
    torch.manual_seed(0)
    fast = tokenizer()
    fast.save_pretrained(out)
    config = LlamaConfig(
        vocab_size=len(fast),
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=2048,
        bos_token_id=fast.bos_token_id,
        eos_token_id=fast.eos_token_id,
        pad_token_id=fast.pad_token_id,
        initializer_range=0.05,
    )
    LlamaForCausalLM(config).save_pretrained(out)


if __name__ == "__main__":
    main(sys.argv[1])
