#!/usr/bin/env python3
"""Writing text with a Llama-shaped model: examples/gpt beside PyTorch and llama.cpp, token by token with a cache.

usage: generate.py BUILD [--layers N] [--width N] [--tokens N] [--threads N] [--folder FOLDER]

Makes a checkpoint of random weights, in f32 and, for llama.cpp, in f32, Q8_0 and Q4_0. The engines take turns; each line
shows the best of three runs, in tokens a second after the prompt. Needs torch and numpy; llama.cpp is left out where the
packages llama-cpp-python (built for this processor) and gguf are missing.
"""
import argparse
import json
import os
import pathlib
import re
import struct
import subprocess
import sys
import time

import numpy
import torch
from torch.nn import functional as F

HEADS, KEY_HEADS, WORDS, CONTEXT, PROMPT = 12, 4, 8192, 1024, "The cat sat on the mat"


def write_checkpoint(folder, layers, width):
    rng, inner = numpy.random.default_rng(1), width * 8 // 3 // 32 * 32
    small = width // HEADS * KEY_HEADS
    shapes = {"model.embed_tokens.weight": (WORDS, width), "model.norm.weight": (width,), "lm_head.weight": (WORDS, width)}
    for i in range(layers):
        shapes |= {f"model.layers.{i}.{name}.weight": shape for name, shape in {
            "input_layernorm": (width,), "post_attention_layernorm": (width,), "self_attn.q_proj": (width, width),
            "self_attn.k_proj": (small, width), "self_attn.v_proj": (small, width), "self_attn.o_proj": (width, width),
            "mlp.gate_proj": (inner, width), "mlp.up_proj": (inner, width), "mlp.down_proj": (width, inner)}.items()}
    weights = {name: (1 + 0.1 * rng.standard_normal(s) if len(s) == 1 else rng.standard_normal(s) / width**0.5).astype("float32")
               for name, s in shapes.items()}
    folder.mkdir(parents=True, exist_ok=True)
    config = {"model_type": "llama", "num_hidden_layers": layers, "num_attention_heads": HEADS, "num_key_value_heads": KEY_HEADS,
              "hidden_size": width, "intermediate_size": inner, "max_position_embeddings": CONTEXT, "vocab_size": WORDS,
              "rms_norm_eps": 1e-5, "rope_theta": 10000.0}
    (folder / "config.json").write_text(json.dumps(config))
    golden = pathlib.Path(__file__).parents[2] / "tests/gpt/golden/llama/tokenizer.json"
    (folder / "tokenizer.json").write_text(golden.read_text())
    header, at = {}, 0
    for name, w in weights.items():
        header[name] = {"dtype": "F32", "shape": list(w.shape), "data_offsets": [at, at + w.nbytes]}
        at += w.nbytes
    head = json.dumps(header).encode()
    head += b" " * (-len(head) % 8)
    with open(folder / "model.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(head)) + head)
        for w in weights.values():
            file.write(w.tobytes())
    return config, {name: torch.from_numpy(w) for name, w in weights.items()}


class Decoder:
    """The same model in PyTorch, with keys and values of the positions so far."""

    def __init__(self, config, weights):
        self.w, self.layers, self.width = weights, config["num_hidden_layers"], config["hidden_size"]
        self.size = self.width // HEADS
        self.cache = torch.zeros(self.layers, 2, KEY_HEADS, CONTEXT, self.size)
        places = torch.arange(CONTEXT)[:, None] * config["rope_theta"] ** (-torch.arange(0, self.size, 2) / self.size)
        self.cos, self.sin, self.at = torch.cat([places.cos()] * 2, 1), torch.cat([places.sin()] * 2, 1), 0

    def turn(self, x, first, last):
        a, b = x.chunk(2, -1)
        return x * self.cos[first:last] + torch.cat([-b, a], -1) * self.sin[first:last]

    @torch.inference_mode()
    def forward(self, tokens):
        first, last = self.at, self.at + len(tokens)
        x = self.w["model.embed_tokens.weight"][tokens]
        for i in range(self.layers):
            w = lambda name, i=i: self.w[f"model.layers.{i}.{name}.weight"]
            y = F.rms_norm(x, (self.width,), w("input_layernorm"), 1e-5)
            heads = lambda name, y=y: F.linear(y, w(name)).view(len(tokens), -1, self.size).transpose(0, 1)
            self.cache[i, 0, :, first:last] = self.turn(heads("self_attn.k_proj"), first, last)
            self.cache[i, 1, :, first:last] = heads("self_attn.v_proj")
            q = self.turn(heads("self_attn.q_proj"), first, last)
            seen = F.scaled_dot_product_attention(q[None], self.cache[None, i, 0, :, :last], self.cache[None, i, 1, :, :last],
                                                  is_causal=len(tokens) > 1, enable_gqa=True)[0]
            x = x + F.linear(seen.transpose(0, 1).reshape(len(tokens), self.width), w("self_attn.o_proj"))
            y = F.rms_norm(x, (self.width,), w("post_attention_layernorm"), 1e-5)
            x = x + F.linear(F.silu(F.linear(y, w("mlp.gate_proj"))) * F.linear(y, w("mlp.up_proj")), w("mlp.down_proj"))
        self.at = last
        return F.linear(F.rms_norm(x[-1], (self.width,), self.w["model.norm.weight"], 1e-5), self.w["lm_head.weight"])


def write_gguf(path, config, weights, kind):
    """The same model for llama.cpp; `kind` is F32, Q8_0 or Q4_0. Norms stay f32."""
    import gguf

    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(CONTEXT), writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"]), writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(HEADS), writer.add_head_count_kv(KEY_HEADS), writer.add_vocab_size(WORDS)
    writer.add_rope_dimension_count(config["hidden_size"] // HEADS), writer.add_rope_freq_base(config["rope_theta"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"]), writer.add_tokenizer_model("no_vocab")
    names = {"self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
             "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm",
             "post_attention_layernorm": "ffn_norm"}
    whole = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight", "lm_head.weight": "output.weight"}
    quantization = gguf.GGMLQuantizationType[kind]
    for name, tensor in weights.items():
        w = tensor.numpy()
        for part, heads in (("q_proj", HEADS), ("k_proj", KEY_HEADS)):
            if part in name:  # llama.cpp pairs neighboring elements of a head, this layout its halves
                w = w.reshape(heads, 2, -1, w.shape[1]).swapaxes(1, 2).reshape(w.shape)
        if name not in whole:
            layer, part = re.fullmatch(r"model\.layers\.(\d+)\.(.+)\.weight", name).groups()
        to = whole.get(name) or f"blk.{layer}.{names[part]}.weight"
        if w.ndim == 1 or kind == "F32":
            writer.add_tensor(to, w)
        else:
            writer.add_tensor(to, gguf.quants.quantize(w, quantization), raw_dtype=quantization)
    writer.write_header_to_file(), writer.write_kv_data_to_file(), writer.write_tensors_to_file(), writer.close()


def ours(build, folder, tokens, threads, bits):
    """Tokens a second."""
    command = [pathlib.Path(build) / "bin/examples/gpt", folder, PROMPT, "--tokens", str(tokens), "--temperature", "0"]
    command += ["--bits", str(bits)] if bits != 32 else []
    ran = subprocess.run(command, env={**os.environ, "FERMATA_NUM_THREADS": str(threads)}, capture_output=True, text=True,
                         errors="replace", check=True)
    return float(re.search(r"([\d.]+) tokens/s", ran.stderr).group(1))


def write_greedily(step, tokens):
    """Tokens a second of step(token ids) -> the id that is most likely to follow, after a prompt of 12."""
    token = step(list(range(12)))
    for i in range(tokens + 8):
        if i == 8:
            start = time.perf_counter()
        token = step([token])
    return tokens / (time.perf_counter() - start)


def torch_rate(config, weights, tokens):
    decoder = Decoder(config, weights)
    return write_greedily(lambda ids: int(decoder.forward(torch.tensor(ids)).argmax()), tokens)


def llama_rate(model, tokens):
    def step(ids):
        model.eval(ids)
        return int(numpy.ctypeslib.as_array(model._ctx.get_logits(), (WORDS,)).argmax())

    model.reset()
    return write_greedily(step, tokens)


def llama_models(folder, config, weights, threads):
    """Models of llama.cpp by name; none where it is not installed."""
    try:
        import llama_cpp
        import gguf  # noqa: F401
    except ImportError as error:
        print(f"llama.cpp is left out: {error}", file=sys.stderr)
        return {}
    defaults = llama_cpp.llama_cpp.llama_model_default_params

    def parameters():  # weights as they are in the file: those that are laid out for AMX crash in 0.3.36
        p = defaults()
        p.use_extra_bufts = False
        return p

    llama_cpp.llama_cpp.llama_model_default_params = parameters
    models = {}
    for kind in ("F32", "Q8_0", "Q4_0"):
        write_gguf(folder / f"{kind}.gguf", config, weights, kind)
        models[f"llama.cpp {kind} ({llama_cpp.__version__})"] = llama_cpp.Llama(
            str(folder / f"{kind}.gguf"), n_ctx=CONTEXT, n_threads=threads, n_threads_batch=threads, verbose=False)
    return models


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build")
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--folder", default="/tmp/fermata_generate")
    options = parser.parse_args()
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: options.threads])
    torch.set_num_threads(options.threads)
    folder = pathlib.Path(options.folder)
    config, weights = write_checkpoint(folder, options.layers, options.width)
    runs = {f"Fermata {name}": lambda bits=bits: ours(options.build, folder, options.tokens, options.threads, bits)
            for name, bits in (("f32", 32), ("int8", 8), ("int4", 4))}
    runs[f"PyTorch f32 ({torch.__version__})"] = lambda: torch_rate(config, weights, options.tokens)
    for name, model in llama_models(folder, config, weights, options.threads).items():
        runs[name] = lambda model=model: llama_rate(model, options.tokens)
    for name in [name for name in runs if name.startswith("Fermata")]:
        runs[name]()  # kernels are in the disk cache from now on
    best = dict.fromkeys(runs, 0.0)
    for number in range(3):
        print(f"generate: {number + 1} of 3", file=sys.stderr, flush=True)
        for name, run in runs.items():
            best[name] = max(best[name], run())
    size = sum(w.numel() for w in weights.values()) * 4 / 2**20
    print(f"{options.layers} layers of width {options.width}, {size:.0f} MiB of f32, {options.threads} thread(s), tokens a second")
    for name, rate in best.items():
        print(f"{name:28} {rate:8.1f}")


if __name__ == "__main__":
    main()
