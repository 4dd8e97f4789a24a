#!/usr/bin/env python3
"""bench/loading.py PROGRAM [PROGRAM...] [--folder F] [--layers N] [--rounds N] [--only NAME...]: loading by encoding.

Writes a model for each encoding, layers of Llama 3.2 1B's widths with random codes and a small vocabulary (needs
numpy), unless the folder has it already. Then each program loads each one in turn and evaluates a token, round after
round. Prints medians of processor time (user and system), which other work on the machine disturbs least, and the time
per byte of file over that of Q4_K.
"""

import argparse
import json
import os
import statistics
import struct
import subprocess
from pathlib import Path

import numpy as np

WIDTH, FF, KEYS, HEADS = 2048, 8192, 512, 32
MATRICES = [('attn_q', 'self_attn.q_proj', WIDTH, WIDTH), ('attn_k', 'self_attn.k_proj', KEYS, WIDTH),
            ('attn_v', 'self_attn.v_proj', KEYS, WIDTH), ('attn_output', 'self_attn.o_proj', WIDTH, WIDTH),
            ('ffn_gate', 'mlp.gate_proj', FF, WIDTH), ('ffn_up', 'mlp.up_proj', FF, WIDTH),
            ('ffn_down', 'mlp.down_proj', WIDTH, FF)]  # outputs, inputs
random = np.random.default_rng(1)

# Of GGUF: the type's number, values and bytes of a block, and where its float16 scales are.
TYPES = {
    'Q4_K': (12, 256, 144, [0, 2]), 'Q5_K': (13, 256, 176, [0, 2]), 'Q6_K': (14, 256, 210, [208]),
    'Q4_0': (2, 32, 18, [0]), 'Q8_0': (8, 32, 34, [0]), 'Q4_1': (3, 32, 20, [0, 2]), 'Q5_0': (6, 32, 22, [0]),
    'Q5_1': (7, 32, 24, [0, 2]), 'Q2_K': (10, 256, 84, [80, 82]), 'Q3_K': (11, 256, 110, [108]),
    'IQ4_NL': (20, 32, 18, [0]), 'IQ4_XS': (23, 256, 136, [0]), 'IQ3_S': (21, 256, 110, [0]),
    'IQ3_XXS': (18, 256, 98, [0]), 'IQ2_S': (22, 256, 82, [0]), 'IQ2_XS': (17, 256, 74, [0]),
    'IQ2_XXS': (16, 256, 66, [0]), 'IQ1_M': (29, 256, 56, []), 'IQ1_S': (19, 256, 50, [0]),
    'TQ2_0': (35, 256, 66, [64]), 'TQ1_0': (34, 256, 54, [52]), 'MXFP4': (39, 32, 17, []), 'NVFP4': (40, 64, 36, []),
    'BF16': (30, 1, 2, []),
}


def small_halves(count):
    return random.integers(0x0800, 0x1000, count, dtype=np.uint16)


def blocks(name, rows, cols):
    _, elements, size, scales = TYPES[name]
    data = random.integers(0, 256, (rows * cols // elements, size), dtype=np.uint8)
    for at in scales:
        data[:, at:at + 2] = small_halves(len(data)).view(np.uint8).reshape(-1, 2)
    if name == 'BF16':
        data[:, 1] = 0x3c
    if name == 'IQ1_M':  # the scale is in the upper halves of four bytes
        for at, nibble in zip((49, 51, 53, 55), (0, 0, 8, 0)):
            data[:, at] = data[:, at] & 15 | nibble << 4
    if name == 'MXFP4':
        data[:, 0] = 112 + data[:, 0] % 8
    if name == 'NVFP4':
        data[:, :4] = 8 + data[:, :4] % 16
    if name == 'TQ2_0':  # three of the four codes
        digits = random.integers(0, 3, (len(data), 64, 4), dtype=np.uint8)
        data[:, :64] = digits[..., 0] | digits[..., 1] << 2 | digits[..., 2] << 4 | digits[..., 3] << 6
    return data.tobytes()


def byte_alphabet():
    """The printable characters that stand for bytes in byte-level BPE."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    return [chr(b) if b in plain else chr(256 + sum(c not in plain for c in range(b))) for b in range(256)]


TOKENS = ['<s>', '</s>', *byte_alphabet(), '\u0120\u0120']


def write_gguf(path, name, layers):
    out = bytearray()
    text = lambda s: struct.pack('<Q', len(s.encode())) + s.encode()
    entries = []
    add = lambda key, kind, value: entries.append(text(key) + struct.pack('<I', kind) + value)
    number = lambda key, value: add(key, 4, struct.pack('<I', value))
    add('general.architecture', 8, text('llama'))
    for key, value in {'context_length': 512, 'embedding_length': WIDTH, 'block_count': layers,
                       'feed_forward_length': FF, 'attention.head_count': HEADS,
                       'attention.head_count_kv': KEYS * HEADS // WIDTH, 'vocab_size': len(TOKENS)}.items():
        number('llama.' + key, value)
    add('llama.attention.layer_norm_rms_epsilon', 6, struct.pack('<f', 1e-5))
    add('tokenizer.ggml.model', 8, text('gpt2'))
    add('tokenizer.ggml.pre', 8, text('llama-bpe'))
    add('tokenizer.ggml.tokens', 9, struct.pack('<IQ', 8, len(TOKENS)) + b''.join(map(text, TOKENS)))
    kinds = [3, 3] + [1] * (len(TOKENS) - 2)
    add('tokenizer.ggml.token_type', 9, struct.pack('<IQ', 5, len(kinds)) + struct.pack(f'<{len(kinds)}i', *kinds))
    add('tokenizer.ggml.merges', 9, struct.pack('<IQ', 8, 1) + text('\u0120 \u0120'))
    number('tokenizer.ggml.bos_token_id', 0)
    number('tokenizer.ggml.eos_token_id', 1)
    norm = np.ones(WIDTH, np.float32).tobytes()
    tensors = [('token_embd.weight', (WIDTH, len(TOKENS)), 30, lambda: blocks('BF16', len(TOKENS), WIDTH)),
               ('output_norm.weight', (WIDTH,), 0, lambda: norm)]
    for layer in range(layers):
        for part in ('attn_norm', 'ffn_norm'):
            tensors.append((f'blk.{layer}.{part}.weight', (WIDTH,), 0, lambda: norm))
        for part, _, rows, cols in MATRICES:
            tensors.append((f'blk.{layer}.{part}.weight', (cols, rows), TYPES[name][0],
                            lambda rows=rows, cols=cols: blocks(name, rows, cols)))
    size_of = {0: lambda n: 4 * n, 30: lambda n: 2 * n}
    _, elements, size, _ = TYPES[name]
    size_of.setdefault(TYPES[name][0], lambda n: n // elements * size)
    infos, offset = b'', 0
    for key, shape, kind, _ in tensors:
        infos += text(key) + struct.pack(f'<I{len(shape)}QIQ', len(shape), *shape, kind, offset)
        offset += (size_of[kind](int(np.prod(shape))) + 31) // 32 * 32
    out = b'GGUF' + struct.pack('<IQQ', 3, len(tensors), len(entries)) + b''.join(entries) + infos
    with open(path, 'wb') as file:
        file.write(out + bytes(-len(out) % 32))
        for _, _, _, make in tensors:
            data = make()
            file.write(data + bytes(-len(data) % 32))


def words(*shape):
    return random.integers(0, 1 << 32, shape, dtype=np.uint32).view(np.int32)


def halves(*shape):
    return small_halves(int(np.prod(shape))).view(np.float16).reshape(shape)


def order_of(cols):
    """One for all matrices of a width: those that read the same activations have the same."""
    return np.random.default_rng(cols).permutation(cols).astype(np.int32)


# Of safetensors: each returns the tensors of a matrix by the end of their names, as (dtype, array).
def gptq(out, cols, zeros=False, order=False):
    groups = np.arange(cols, dtype=np.int32) // 128
    return {'qweight': ('I32', words(cols // 8, out)),
            'qzeros': ('I32', words(cols // 128, out // 8) if zeros else
                       np.full((cols // 128, out // 8), 0x77777777, np.int32)),
            'scales': ('F16', halves(cols // 128, out)),
            'g_idx': ('I32', groups[order_of(cols)] if order else groups)}


def awq(out, cols):
    return {'qweight': ('I32', words(cols, out // 8)), 'qzeros': ('I32', words(cols // 128, out // 8)),
            'scales': ('F16', halves(cols // 128, out))}


def exl2(out, cols):
    groups, first = [], 0
    for g in range(cols // 128):
        bits = 5 if g < cols // 256 else 4
        groups += [bits, first]
        first += 128 * bits // 32
    return {'q_weight': ('I32', words(first, out)), 'q_groups': ('I16', np.array(groups, np.uint16).view(np.int16)),
            'q_scale': ('I32', words(cols // 128, out // 8)), 'q_scale_max': ('F16', halves(cols // 128)),
            'q_invperm': ('I32', order_of(cols))}


def fp8(out, cols):
    codes = random.integers(0, 256, (out, cols), dtype=np.uint8)
    codes[(codes & 0x7f) == 0x7f] = 0
    return {'weight': ('F8_E4M3', codes),
            'weight_scale_inv': ('F32', np.full((out // 128, cols // 128), 1e-4, np.float32))}


def nvfp4(out, cols):
    return {'weight_packed': ('U8', random.integers(0, 256, (out, cols // 2), dtype=np.uint8)),
            'weight_scale': ('F8_E4M3', random.integers(8, 24, (out, cols // 16), dtype=np.uint8)),
            'weight_global_scale': ('F32', np.full(1, 10, np.float32))}


def packed(out, cols, zeros=False):
    tensors = {'weight_packed': ('I32', words(out, cols // 8)), 'weight_scale': ('F16', halves(out, cols // 128)),
               'weight_shape': ('I64', np.array([out, cols], np.int64))}
    if zeros:
        tensors['weight_zero_point'] = ('I32', words(out // 8, cols // 128))
    return tensors


def int8(out, cols):
    return {'weight': ('I8', random.integers(-128, 128, (out, cols), dtype=np.int8)),
            'weight_scale': ('F16', halves(out, 1))}


def mlx(out, cols, bits=4):
    return {'weight': ('U32', words(out, cols * bits // 32)), 'scales': ('F16', halves(out, cols // 64)),
            'biases': ('F16', halves(out, cols // 64))}


GPTQ = {'quant_method': 'gptq', 'bits': 4, 'group_size': 128}
COMPRESSED = {'quant_method': 'compressed-tensors', 'quantization_status': 'compressed'}


def compressed(form, **weights):
    return COMPRESSED | {'format': form, 'config_groups': {'group_0': {
        'targets': ['Linear'], 'weights': {'dynamic': False, **weights}}}}


INT4 = {'type': 'int', 'num_bits': 4, 'group_size': 128, 'strategy': 'group'}
FORMATS = {
    'GPTQ': (gptq, GPTQ),
    'GPTQ, zeros': (lambda out, cols: gptq(out, cols, zeros=True), GPTQ),
    'GPTQ, act-order': (lambda out, cols: gptq(out, cols, order=True), GPTQ | {'desc_act': True}),
    'AWQ': (awq, {'quant_method': 'awq', 'bits': 4, 'group_size': 128, 'version': 'gemm', 'zero_point': True}),
    'EXL2': (exl2, {'quant_method': 'exl2', 'bits': 4.5}),
    'FP8': (fp8, {'quant_method': 'fp8', 'fmt': 'e4m3', 'weight_block_size': [128, 128]}),
    'NVFP4, folder': (nvfp4, compressed('nvfp4-pack-quantized', type='float', num_bits=4, group_size=16,
                                        strategy='tensor_group', symmetric=True)),
    'int4': (packed, compressed('pack-quantized', symmetric=True, **INT4)),
    'int4, zeros': (lambda out, cols: packed(out, cols, True), compressed('pack-quantized', symmetric=False, **INT4)),
    'int8': (int8, compressed('int-quantized', type='int', num_bits=8, strategy='channel', symmetric=True)),
    'MLX': (mlx, {'group_size': 64, 'bits': 4}),
}


def write_folder(folder, name, layers):
    make, settings = FORMATS[name]
    folder.mkdir()
    config = {'architectures': ['LlamaForCausalLM'], 'model_type': 'llama', 'hidden_size': WIDTH,
              'intermediate_size': FF, 'num_hidden_layers': layers, 'num_attention_heads': HEADS,
              'num_key_value_heads': KEYS * HEADS // WIDTH, 'vocab_size': len(TOKENS), 'rms_norm_eps': 1e-5,
              'max_position_embeddings': 512, 'rope_theta': 10000.0, 'bos_token_id': 0, 'eos_token_id': 1,
              'tie_word_embeddings': True, 'hidden_act': 'silu', 'torch_dtype': 'bfloat16',
              ('quantization' if name == 'MLX' else 'quantization_config'): settings}
    (folder / 'config.json').write_text(json.dumps(config))
    level = {'type': 'ByteLevel', 'add_prefix_space': False, 'trim_offsets': True, 'use_regex': True}
    special = [{'id': i, 'content': TOKENS[i], 'single_word': False, 'lstrip': False, 'rstrip': False,
                'normalized': False, 'special': True} for i in (0, 1)]
    (folder / 'tokenizer.json').write_text(json.dumps({
        'version': '1.0', 'added_tokens': special, 'normalizer': None, 'pre_tokenizer': level, 'post_processor': None,
        'decoder': level, 'model': {'type': 'BPE', 'vocab': {t: i for i, t in enumerate(TOKENS)},
                                    'merges': [['\u0120', '\u0120']]}}))
    norm = ('F32', np.ones(WIDTH, np.float32))
    embedding = 0x3c00 + random.integers(0, 128, (len(TOKENS), WIDTH), np.uint16)
    tensors = {'model.embed_tokens.weight': ('BF16', embedding), 'model.norm.weight': norm}
    for layer in range(layers):
        for part in ('input_layernorm', 'post_attention_layernorm'):
            tensors[f'model.layers.{layer}.{part}.weight'] = norm
        for _, part, out, cols in MATRICES:
            for suffix, tensor in make(out, cols).items():
                tensors[f'model.layers.{layer}.{part}.{suffix}'] = tensor
    header, offset = {}, 0
    for key, (kind, array) in tensors.items():
        header[key] = {'dtype': kind, 'shape': list(array.shape), 'data_offsets': [offset, offset + array.nbytes]}
        offset += array.nbytes
    text = json.dumps(header).encode()
    text += b' ' * (-len(text) % 8)
    with open(folder / 'model.safetensors', 'wb') as file:
        file.write(struct.pack('<Q', len(text)) + text)
        for _, array in tensors.values():
            file.write(array.tobytes())


def size_of(path):
    return sum(file.stat().st_size for file in (path.iterdir() if path.is_dir() else [path]))


def load(program, path):
    """Seconds of processor time, of the user and of the system."""
    command = [program, 'complete', '--model', str(path), '-n', '1', '--threads', '2', '-p', 'a']
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    text = process.stderr.read().decode()
    _, status, usage = os.wait4(process.pid, 0)
    if status != 0:
        raise SystemExit(f'{" ".join(command)}: {text}')
    return usage.ru_utime + usage.ru_stime


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('programs', nargs='+')
    parser.add_argument('--folder', type=Path, default=Path('/tmp/foresay-loading'))
    parser.add_argument('--layers', type=int, default=10)
    parser.add_argument('--rounds', type=int, default=5)
    parser.add_argument('--only', nargs='*')
    options = parser.parse_args()
    options.folder.mkdir(exist_ok=True)
    names = [name for name in [*TYPES, *FORMATS] if options.only is None or name in [*options.only, 'Q4_K']]
    paths = {}
    for name in names:
        paths[name] = options.folder / (name + ('.gguf' if name in TYPES else ''))
        if not paths[name].exists():
            (write_gguf if name in TYPES else write_folder)(paths[name], name, options.layers)
    times = {(program, name): [] for program in options.programs for name in names}
    for round in range(options.rounds + 1):
        for name in names:
            for program in options.programs:
                seconds = load(program, paths[name])
                if round > 0:  # the first one fills the system's cache
                    times[program, name].append(seconds)
    print('encoding, MB of file; for each program: seconds, median and least; by byte, over Q4_K')
    for name in names:
        line = f'{name:16} {size_of(paths[name]) / 1e6:6.0f}'
        for program in options.programs:
            own, four = statistics.median(times[program, name]), statistics.median(times[program, 'Q4_K'])
            ratio = own / size_of(paths[name]) / (four / size_of(paths['Q4_K']))
            line += f'   {own:5.2f} {min(times[program, name]):5.2f} {ratio:6.2f}'
        print(line)


if __name__ == '__main__':
    main()
