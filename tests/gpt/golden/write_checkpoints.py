#!/usr/bin/env python3
"""Writes two small checkpoints in Hugging Face's layout, gpt2/ and llama/, with random weights, and golden.json beside
each: tokens of a text, the logits after each of them, and what follows. Needs nothing but Python.

usage: write_checkpoints.py  (in this folder)

The models are computed in double precision, token by token over the whole text, without a cache.
"""
import json
import math
import pathlib
import random
import re
import struct

TEXT = "The cat sat on the mat, it's 42 years old.\n\n  The cat\u00e9 sat"
SPECIAL = "<|endoftext|>"
WORDS = re.compile(r"'s|'t|'re|'ve|'m|'ll|'d| ?[A-Za-z\x80-\uffff]+| ?[0-9]+| ?[^\sA-Za-z0-9\x80-\uffff]+|\s+(?!\S)|\s+")


# ---- Tokenizer

def byte_characters():
    printing = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [b for b in range(256) if b not in printing]
    return {**{b: chr(b) for b in printing}, **{b: chr(256 + i) for i, b in enumerate(others)}}


def spell(text, characters):
    return [characters[b] for b in text.encode()]


def merged(parts, pair):
    out, i = [], 0
    while i < len(parts):
        if tuple(parts[i:i + 2]) == pair:
            out.append(parts[i] + parts[i + 1])
            i += 2
        else:
            out.append(parts[i])
            i += 1
    return out


def learn_merges(text, count):
    characters = byte_characters()
    words = [spell(w, characters) for w in WORDS.findall(text)]
    merges = []
    for _ in range(count):
        pairs = {}
        for word in words:
            for pair in zip(word, word[1:]):
                pairs[pair] = pairs.get(pair, 0) + 1
        if not pairs:
            break
        best = max(pairs, key=lambda p: (pairs[p], p))
        merges.append(best)
        words = [merged(word, best) for word in words]
    return merges


def encode(text, vocabulary, merges):
    characters, rank, tokens = byte_characters(), {m: i for i, m in enumerate(merges)}, []
    for word in WORDS.findall(text):
        parts = spell(word, characters)
        while True:
            known = [p for p in zip(parts, parts[1:]) if p in rank]
            if not known:
                break
            parts = merged(parts, min(known, key=rank.get))
        tokens += [vocabulary[p] for p in parts]
    return tokens


# ---- Models: lists of lists of double

def matvec(x, weight):  # [in] by [in][out]
    return [sum(a * row[j] for a, row in zip(x, weight)) for j in range(len(weight[0]))]


def transpose(m):
    return [list(r) for r in zip(*m)]


def softmax(x):
    top = max(x)
    e = [math.exp(v - top) for v in x]
    return [v / sum(e) for v in e]


def layer_norm(x, weight, bias, eps):
    mean = sum(x) / len(x)
    var = sum((v - mean) ** 2 for v in x) / len(x)
    return [(v - mean) / math.sqrt(var + eps) * w + b for v, w, b in zip(x, weight, bias)]


def rms_norm(x, weight, eps):
    scale = 1 / math.sqrt(sum(v * v for v in x) / len(x) + eps)
    return [v * scale * w for v, w in zip(x, weight)]


def rotate(x, position, theta):
    half = len(x) // 2
    angles = [position * theta ** (-i / half) for i in range(half)]
    return ([x[i] * math.cos(a) - x[i + half] * math.sin(a) for i, a in enumerate(angles)] +
            [x[i + half] * math.cos(a) + x[i] * math.sin(a) for i, a in enumerate(angles)])


def attend(queries, keys, values, heads, key_heads, width):
    """Causal attention: lists by position of [heads * width]."""
    out = []
    for t, q in enumerate(queries):
        row = []
        for h in range(heads):
            k0, q0 = h // (heads // key_heads) * width, h * width
            scores = softmax([sum(q[q0 + d] * keys[s][k0 + d] for d in range(width)) / math.sqrt(width)
                              for s in range(t + 1)])
            row += [sum(p * values[s][k0 + d] for s, p in enumerate(scores)) for d in range(width)]
        out.append(row)
    return out


def add(x, y):
    return [a + b for a, b in zip(x, y)]


def gpt2_logits(tokens, w, c):
    xs = [add(w["wte.weight"][t], w["wpe.weight"][i]) for i, t in enumerate(tokens)]
    width, eps = c["n_embd"], c["layer_norm_epsilon"]
    for i in range(c["n_layer"]):
        at = lambda name: w[f"h.{i}.{name}"]
        linear = lambda x, name: add(matvec(x, at(name + ".weight")), at(name + ".bias"))
        normed = [layer_norm(x, at("ln_1.weight"), at("ln_1.bias"), eps) for x in xs]
        qkv = [linear(x, "attn.c_attn") for x in normed]
        seen = attend([v[:width] for v in qkv], [v[width:2 * width] for v in qkv], [v[2 * width:] for v in qkv],
                      c["n_head"], c["n_head"], width // c["n_head"])
        xs = [add(x, linear(y, "attn.c_proj")) for x, y in zip(xs, seen)]
        for t, x in enumerate(xs):
            h = linear(layer_norm(x, at("ln_2.weight"), at("ln_2.bias"), eps), "mlp.c_fc")
            h = [0.5 * v * (1 + math.tanh(math.sqrt(2 / math.pi) * (v + 0.044715 * v ** 3))) for v in h]
            xs[t] = add(x, linear(h, "mlp.c_proj"))
    xs = [layer_norm(x, w["ln_f.weight"], w["ln_f.bias"], eps) for x in xs]
    return [matvec(x, transpose(w["wte.weight"])) for x in xs]


def llama_logits(tokens, w, c):
    xs = [w["model.embed_tokens.weight"][t] for t in tokens]
    heads, key_heads, eps = c["num_attention_heads"], c["num_key_value_heads"], c["rms_norm_eps"]
    width = c["hidden_size"] // heads
    for i in range(c["num_hidden_layers"]):
        at = lambda name: w[f"model.layers.{i}.{name}.weight"]
        linear = lambda x, name: matvec(x, transpose(at(name)))
        turn = lambda x, t: [v for h in range(0, len(x), width) for v in rotate(x[h:h + width], t, c["rope_theta"])]
        normed = [rms_norm(x, at("input_layernorm"), eps) for x in xs]
        seen = attend([turn(linear(x, "self_attn.q_proj"), t) for t, x in enumerate(normed)],
                      [turn(linear(x, "self_attn.k_proj"), t) for t, x in enumerate(normed)],
                      [linear(x, "self_attn.v_proj") for x in normed], heads, key_heads, width)
        xs = [add(x, linear(y, "self_attn.o_proj")) for x, y in zip(xs, seen)]
        for t, x in enumerate(xs):
            h = rms_norm(x, at("post_attention_layernorm"), eps)
            gate = [v / (1 + math.exp(-v)) for v in linear(h, "mlp.gate_proj")]
            xs[t] = add(x, linear([a * b for a, b in zip(gate, linear(h, "mlp.up_proj"))], "mlp.down_proj"))
    xs = [rms_norm(x, w["model.norm.weight"], eps) for x in xs]
    return [matvec(x, transpose(w["lm_head.weight"])) for x in xs]


# ---- Files

def f32(x):
    return struct.unpack("<f", struct.pack("<f", x))[0]


def weight(rng, *shape, scale=0.25, mean=0.0):
    if len(shape) == 1:
        return [f32(mean + rng.gauss(0, scale)) for _ in range(shape[0])]
    return [weight(rng, *shape[1:], scale=scale, mean=mean) for _ in range(shape[0])]


def write_safetensors(path, tensors):
    header, data = {}, b""
    for name, t in sorted(tensors.items()):
        rows = t if isinstance(t[0], list) else [t]
        shape = [len(t), len(t[0])] if isinstance(t[0], list) else [len(t)]
        raw = b"".join(struct.pack(f"<{len(r)}f", *r) for r in rows)
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    head = json.dumps(header).encode()
    head += b" " * (-len(head) % 8)
    path.write_bytes(struct.pack("<Q", len(head)) + head + data)


def write(folder, config, tensors, logits_of):
    folder.mkdir(exist_ok=True)
    merges = learn_merges(TEXT * 2 + " the the cat on", 24)
    vocabulary = {c: i for i, c in enumerate(byte_characters().values())}
    for a, b in merges:
        vocabulary.setdefault(a + b, len(vocabulary))
    special = config["vocab_size"] - 1
    assert len(vocabulary) <= special
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    (folder / "tokenizer.json").write_text(json.dumps({
        "added_tokens": [{"id": special, "content": SPECIAL, "special": True}],
        "model": {"type": "BPE", "vocab": vocabulary, "merges": [f"{a} {b}" for a, b in merges]}}, indent=0) + "\n")
    write_safetensors(folder / "model.safetensors", tensors)
    tokens = encode(TEXT, vocabulary, merges)
    logits = logits_of(tokens, tensors, config)
    follow = list(tokens)
    for _ in range(4):
        follow.append(max(enumerate(logits_of(follow, tensors, config)[-1]), key=lambda p: p[1])[0])
    (folder / "golden.json").write_text(json.dumps({
        "text": TEXT, "tokens": tokens, "follow": follow[len(tokens):],
        "logits": [[round(v, 6) for v in row] for row in (logits[0], logits[len(logits) // 2], logits[-1])]}) + "\n")


def main():
    here, rng = pathlib.Path(__file__).parent, random.Random(5)
    vocabulary, width = 290, 16
    gpt2 = {"wte.weight": weight(rng, vocabulary, width, scale=0.6), "wpe.weight": weight(rng, 96, width)}
    norm = lambda: {"weight": weight(rng, width, scale=0.1, mean=1.0), "bias": weight(rng, width, scale=0.1)}
    named = lambda at, parts: {f"{at}.{k}": v for k, v in parts.items()}
    linear = lambda a, b: {"weight": weight(rng, a, b), "bias": weight(rng, b, scale=0.1)}
    for i in range(2):
        for at, parts in [("ln_1", norm()), ("attn.c_attn", linear(width, 3 * width)),
                          ("attn.c_proj", linear(width, width)), ("ln_2", norm()),
                          ("mlp.c_fc", linear(width, 4 * width)), ("mlp.c_proj", linear(4 * width, width))]:
            gpt2 |= named(f"h.{i}.{at}", parts)
    gpt2 |= named("ln_f", norm())
    write(here / "gpt2", {"model_type": "gpt2", "n_layer": 2, "n_head": 4, "n_embd": width, "n_positions": 96,
                          "vocab_size": vocabulary, "layer_norm_epsilon": 1e-5}, gpt2, gpt2_logits)
    llama = {"model.embed_tokens.weight": weight(rng, vocabulary, width, scale=0.6),
             "model.norm.weight": weight(rng, width, scale=0.1, mean=1.0),
             "lm_head.weight": weight(rng, vocabulary, width)}
    for i in range(2):
        at = f"model.layers.{i}."
        for name in ("input_layernorm", "post_attention_layernorm"):
            llama[f"{at}{name}.weight"] = weight(rng, width, scale=0.1, mean=1.0)
        for name, out, into in (("self_attn.q_proj", width, width), ("self_attn.k_proj", width // 2, width),
                                ("self_attn.v_proj", width // 2, width), ("self_attn.o_proj", width, width),
                                ("mlp.gate_proj", 40, width), ("mlp.up_proj", 40, width), ("mlp.down_proj", width, 40)):
            llama[f"{at}{name}.weight"] = weight(rng, out, into)
    write(here / "llama", {"model_type": "llama", "num_hidden_layers": 2, "num_attention_heads": 4,
                           "num_key_value_heads": 2, "hidden_size": width, "intermediate_size": 40,
                           "max_position_embeddings": 96, "vocab_size": vocabulary, "rms_norm_eps": 1e-5,
                           "rope_theta": 10000.0}, llama, llama_logits)


if __name__ == "__main__":
    main()
