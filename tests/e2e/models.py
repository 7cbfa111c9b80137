"""Small models with random weights for the real llama.cpp server. Needs the packages gguf and numpy.

The text they write is nonsense; the caches they fill have the layout and the sizes of real ones. One token
a byte: ids 3..258 are the bytes 0..255, so the ids 35..129 are printable ASCII.
"""

from dataclasses import dataclass, replace

import gguf
import numpy as np

PRINTABLE = range(35, 130)
_VOCABULARY = 288


@dataclass(frozen=True)
class Model:
    """The measures of a model. `interval` > 0 makes it a hybrid: each interval-th layer has attention, the
    others a recurrent state of `heads_v` matrices of 128 x 128 floats.
    """

    arch: str
    layers: int
    embedding: int
    heads_kv: int
    head: int
    rope: int
    interval: int = 0
    heads_k: int = 0
    heads_v: int = 0

    def recurrent(self, layer: int) -> bool:
        return self.interval > 0 and (layer + 1) % self.interval != 0


# Full size: 32 KiB a token; 16 KiB a token and 12.6 MiB of recurrent state.
PLAIN = Model("qwen3", layers=16, embedding=128, heads_kv=8, head=64, rope=64)
HYBRID = Model(
    "qwen35", layers=8, embedding=64, heads_kv=8, head=256, rope=64, interval=4, heads_k=16, heads_v=32
)
# Quick ones: 16 KiB a token; 8 KiB a token and 3.2 MiB of state.
SMALL_PLAIN = replace(PLAIN, layers=8)
SMALL_HYBRID = replace(HYBRID, layers=4, heads_k=8, heads_v=16)

_STATE = 128
_CONVOLUTION = 4
_FEED_FORWARD = 64


def write_model(path: str, model: Model, seed: int = 1) -> str:
    """Write the model as a GGUF file, the same bytes for the same seed. Returns the path."""
    writer = gguf.GGUFWriter(path, model.arch)
    _describe(writer, model)
    _fill(writer, model, np.random.default_rng(seed))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _describe(writer: gguf.GGUFWriter, model: Model) -> None:
    writer.add_name(f"kvtool-{model.arch}")
    writer.add_file_type(1)
    writer.add_vocab_size(_VOCABULARY)
    writer.add_context_length(32768)
    writer.add_embedding_length(model.embedding)
    writer.add_block_count(model.layers)
    writer.add_feed_forward_length(_FEED_FORWARD)
    writer.add_head_count(model.heads_kv)
    writer.add_head_count_kv(model.heads_kv)
    writer.add_key_length(model.head)
    writer.add_value_length(model.head)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_freq_base(1e6)
    writer.add_rope_dimension_count(model.rope)
    if model.interval:
        writer.add_rope_dimension_sections([11, 11, 10, 0])
        writer.add_ssm_conv_kernel(_CONVOLUTION)
        writer.add_ssm_inner_size(_STATE * model.heads_v)
        writer.add_ssm_state_size(_STATE)
        writer.add_ssm_time_step_rank(model.heads_v)
        writer.add_ssm_group_count(model.heads_k)
        writer.add_uint32(f"{model.arch}.full_attention_interval", model.interval)
    # The vocabulary: three control tokens, the 256 bytes, the word boundary, padding.
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), "\u2581"]
    kinds = [2, 3, 3, *[6] * 256, 1]
    padding = _VOCABULARY - len(tokens)
    writer.add_tokenizer_model("llama")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(tokens + [f"<pad{at}>" for at in range(padding)])
    writer.add_token_scores([0.0] * _VOCABULARY)
    writer.add_token_types(kinds + [5] * padding)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_add_bos_token(False)
    writer.add_chat_template("{% for m in messages %}{{ m['content'] }}{% endfor %}")


def _fill(writer: gguf.GGUFWriter, model: Model, rng: np.random.Generator) -> None:
    width, heads = model.embedding, model.heads_kv * model.head

    def matrix(name: str, inputs: int, outputs: int, kind: type = np.float16) -> None:
        values = rng.standard_normal((outputs, inputs), dtype=np.float32) / np.sqrt(inputs)
        writer.add_tensor(f"{name}.weight", values.astype(kind))

    def vector(name: str, length: int, mean: float = 1, deviation: float = 0.1) -> None:
        writer.add_tensor(name, mean + np.float32(deviation) * rng.standard_normal(length, dtype=np.float32))

    matrix("token_embd", width, _VOCABULARY)
    vector("output_norm.weight", width)
    matrix("output", width, _VOCABULARY)
    for layer in range(model.layers):
        block = f"blk.{layer}."
        vector(block + "attn_norm.weight", width)
        if model.recurrent(layer):
            inner = _STATE * model.heads_v
            convolved = inner + 2 * _STATE * model.heads_k
            matrix(block + "attn_qkv", width, convolved)
            matrix(block + "attn_gate", width, inner)
            matrix(block + "ssm_conv1d", _CONVOLUTION, convolved, np.float32)
            vector(block + "ssm_dt.bias", model.heads_v, 0, 0.5)
            vector(block + "ssm_a", model.heads_v, -0.05, 0.01)
            matrix(block + "ssm_beta", width, model.heads_v)
            matrix(block + "ssm_alpha", width, model.heads_v)
            vector(block + "ssm_norm.weight", _STATE)
            matrix(block + "ssm_out", inner, width)
        else:
            matrix(block + "attn_q", width, heads * (2 if model.interval else 1))
            matrix(block + "attn_k", width, heads)
            matrix(block + "attn_v", width, heads)
            matrix(block + "attn_output", heads, width)
            vector(block + "attn_q_norm.weight", model.head)
            vector(block + "attn_k_norm.weight", model.head)
        vector(block + ("post_attention_norm.weight" if model.interval else "ffn_norm.weight"), width)
        matrix(block + "ffn_gate", width, _FEED_FORWARD)
        matrix(block + "ffn_up", width, _FEED_FORWARD)
        matrix(block + "ffn_down", _FEED_FORWARD, width)
