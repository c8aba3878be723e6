"""Writes models with random weights, in the form of Hugging Face.

Weights are drawn here and not by vLLM's load_format "dummy", whose weights are so small
that the output hardly depends on the KV cache.
"""

import array
import json
import os
import random
import struct
import sys

VOCABULARY = 1000
HIDDEN = 64
INNER = 128  # of the feed-forward part
HEADS, KV_HEADS, HEAD_SIZE = 4, 2, 64  # vLLM's attention on CPU refuses heads of size 16
WINDOW = 128
RANK = 8  # of a LoRA

COMMON = {
    "hidden_size": HIDDEN,
    "intermediate_size": INNER,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "head_dim": HEAD_SIZE,
    "vocab_size": VOCABULARY,
    "max_position_embeddings": 65536,
    "torch_dtype": "float32",
}
LLAMA = {
    **COMMON,
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "num_hidden_layers": 2,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
GEMMA = {
    **COMMON,
    "architectures": ["Gemma3ForCausalLM"],
    "model_type": "gemma3_text",
    "num_hidden_layers": 6,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1000000.0,
    "rope_local_base_freq": 10000.0,
    "sliding_window": WINDOW,
    "sliding_window_pattern": 3,
    "layer_types": ["sliding_attention", "sliding_attention", "full_attention"] * 2,
    "query_pre_attn_scalar": HEAD_SIZE,
    "hidden_activation": "gelu_pytorch_tanh",
    "tie_word_embeddings": True,
    "bos_token_id": 2,
    "eos_token_id": 1,
    "pad_token_id": 0,
}
CONFIGS = {"llama": LLAMA, "gemma3": GEMMA}


def shapes(config):
    """Returns the shape of each weight by its name; norms have one dimension."""
    gemma = config["model_type"] == "gemma3_text"
    found = {"model.embed_tokens.weight": (VOCABULARY, HIDDEN), "model.norm.weight": (HIDDEN,)}
    if not config["tie_word_embeddings"]:
        found["lm_head.weight"] = (VOCABULARY, HIDDEN)
    norms = ["input_layernorm", "post_attention_layernorm"]
    if gemma:
        norms += ["pre_feedforward_layernorm", "post_feedforward_layernorm"]
    for layer in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{layer}."
        found.update({f"{prefix}{norm}.weight": (HIDDEN,) for norm in norms})
        if gemma:
            found.update({f"{prefix}self_attn.{norm}.weight": (HEAD_SIZE,) for norm in ("q_norm", "k_norm")})
        found[prefix + "self_attn.q_proj.weight"] = (HEADS * HEAD_SIZE, HIDDEN)
        found[prefix + "self_attn.k_proj.weight"] = (KV_HEADS * HEAD_SIZE, HIDDEN)
        found[prefix + "self_attn.v_proj.weight"] = (KV_HEADS * HEAD_SIZE, HIDDEN)
        found[prefix + "self_attn.o_proj.weight"] = (HIDDEN, HEADS * HEAD_SIZE)
        found[prefix + "mlp.gate_proj.weight"] = (INNER, HIDDEN)
        found[prefix + "mlp.up_proj.weight"] = (INNER, HIDDEN)
        found[prefix + "mlp.down_proj.weight"] = (HIDDEN, INNER)
    return found


def deviation(weight, shape):
    """Activations keep their size from layer to layer. Embeddings are small, as otherwise a
    model whose output shares them repeats its last token."""
    return shape[1] ** -0.5 * (0.1 if "embed" in weight else 1)


def draw(shape, deviation, numbers):
    rows, columns = shape
    return array.array("f", (numbers.gauss(0, deviation) for _ in range(rows * columns)))


def write(folder, name, seed=1):
    """Writes config.json and model.safetensors of the model into a folder."""
    config = CONFIGS[name]
    norm = 0.0 if name == "gemma3" else 1.0  # Gemma adds 1
    os.makedirs(folder)
    with open(os.path.join(folder, "config.json"), "w") as file:
        json.dump(config, file)
    write_weights(os.path.join(folder, "model.safetensors"), shapes(config), norm, random.Random(seed))


def write_adapter(folder, seed):
    """Writes a LoRA of the values of model llama into a folder."""
    os.makedirs(folder)
    with open(os.path.join(folder, "adapter_config.json"), "w") as file:
        json.dump({"peft_type": "LORA", "r": RANK, "lora_alpha": RANK, "target_modules": ["v_proj"]}, file)
    layers = (f"base_model.model.model.layers.{i}.self_attn.v_proj" for i in range(LLAMA["num_hidden_layers"]))
    found = {}
    for layer in layers:
        found[f"{layer}.lora_A.weight"] = RANK, HIDDEN
        found[f"{layer}.lora_B.weight"] = KV_HEADS * HEAD_SIZE, RANK
    write_weights(os.path.join(folder, "adapter_model.safetensors"), found, 0.0, random.Random(seed))


def write_eagle(folder, seed):
    """Writes an EAGLE head of one layer for model llama into a folder."""
    config = {**LLAMA, "num_hidden_layers": 1}
    layer = {name: shape for name, shape in shapes(config).items() if name.startswith("model.layers.")}
    found = {name.removeprefix("model."): shape for name, shape in layer.items() if "input_layernorm" not in name}
    found.update({"embed_tokens.weight": (VOCABULARY, HIDDEN), "fc.weight": (HIDDEN, 2 * HIDDEN)})
    os.makedirs(folder)
    with open(os.path.join(folder, "config.json"), "w") as file:
        json.dump(config, file)
    write_weights(os.path.join(folder, "model.safetensors"), found, 1.0, random.Random(seed))


def write_weights(path, shapes, norm, numbers):
    header, parts, size = {}, [], 0
    for weight, shape in shapes.items():
        if len(shape) == 1:
            values = array.array("f", [norm]) * shape[0]
        else:
            values = draw(shape, deviation(weight, shape), numbers)
        if sys.byteorder == "big":
            values.byteswap()
        parts.append(values.tobytes())
        header[weight] = {"dtype": "F32", "shape": shape, "data_offsets": [size, size + len(parts[-1])]}
        size += len(parts[-1])
    encoded = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(encoded)) + encoded)
        file.writelines(parts)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: model.py FOLDER, which is made: a Llama of two layers")
    write(sys.argv[1], "llama")
