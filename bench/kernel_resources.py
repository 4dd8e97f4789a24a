#!/usr/bin/env python3
"""bench/kernel_resources.py [--worst] FILE..: registers and stack of every kernel in object files or programs.

One line for each architecture and kernel: bytes of code, registers of a thread, bytes of its stack, and instructions
that read or write the stack: all of them, and the most in a loop that has no loop inside and multiplies matrices. A
stack is what the compiler spilled, or an array that it could not keep in registers.
--worst: a table with the worst numbers of each file and architecture, any kernel's.
Reads the ELF files (cubins) that nvcc leaves in the section .nv_fatbin; needs c++filt, and nothing of CUDA.
"""
import re
import struct
import subprocess
import sys

CUDA_MACHINE = 190
REGISTERS, FRAME = 0x2F, 0x11  # attributes of .nv.info
# The low 12 bits of an instruction of 16 bytes, the same from sm_75 to sm_120.
LOCAL = {0x983, 0x387}  # LDL, STL
MULTIPLY = {0x23C, 0x237, 0x9F0}  # HMMA, IMMA, HGMMA
BRANCH = {0x947, 0x547}  # BRA, with a predicate of a thread or of the warp


def cubins(data):
    at = data.find(b"\x7fELF")
    while at >= 0:
        if struct.unpack_from("<H", data, at + 0x12)[0] == CUDA_MACHINE:
            yield data[at:]
        at = data.find(b"\x7fELF", at + 4)


def text_at(data, at):
    return data[at:data.index(b"\0", at)].decode()


def sections(cubin):
    """(name, offset, size) of each section."""
    first, = struct.unpack_from("<Q", cubin, 0x28)
    count, names = struct.unpack_from("<HH", cubin, 0x3C)
    headers = [struct.unpack_from("<IIQQQQIIQQ", cubin, first + 64 * i) for i in range(count)]
    return [(text_at(cubin, headers[names][4] + h[0]), h[4], h[5]) for h in headers]


def attributes(cubin, offset, size):
    """{attribute: {symbol: value}} of a section .nv.info."""
    found, at = {}, offset
    while at < offset + size:
        form, attribute, length = struct.unpack_from("<BBH", cubin, at)
        at += 4
        if form != 4:  # the value is the length
            continue
        if length == 8:
            symbol, value = struct.unpack_from("<II", cubin, at)
            found.setdefault(attribute, {})[symbol] = value
        at += length
    return found


def stack_accesses(code, architecture):
    """Instructions that read or write the stack: in all of a kernel, and the most in one innermost loop."""
    words = list(struct.iter_unpack("<QQ", code))
    opcodes = [low & 0xFFF for low, _ in words]
    loops = []
    for at, (low, high) in enumerate(words):
        if opcodes[at] not in BRANCH:
            continue
        # The distance in units of 4 bytes: 48 bits from bit 34, and since sm_90 the 8 bits from bit 16 below them.
        distance = (high << 64 | low) >> 34 & (1 << 48) - 1
        distance -= (distance >> 47) << 48
        if architecture >= 90:
            distance = distance << 8 | low >> 16 & 0xFF
        first = at + 1 + distance // 4
        if 0 <= first < at:  # a branch to itself ends the code
            loops.append((first, at))
    most = 0
    for first, last in loops:
        if any(first <= a and b <= last and (a, b) != (first, last) for a, b in loops):
            continue
        body = opcodes[first:last + 1]
        if MULTIPLY & set(body):
            most = max(most, sum(opcode in LOCAL for opcode in body))
    return sum(opcode in LOCAL for opcode in opcodes), most


def kernels(cubin):
    """(architecture, name, bytes of code, registers, bytes of stack, stack_accesses()) of each kernel."""
    parts = {name: (offset, size) for name, offset, size in sections(cubin)}
    if ".nv.info" not in parts:
        return
    info = attributes(cubin, *parts[".nv.info"])
    flags, = struct.unpack_from("<I", cubin, 0x30)
    architecture = flags >> 8 & 0xFF if flags >> 8 & 0xFF else flags & 0xFF
    symbols, (strings, _) = parts[".symtab"], parts[".strtab"]
    for symbol, registers in sorted(info.get(REGISTERS, {}).items()):
        name = text_at(cubin, strings + struct.unpack_from("<I", cubin, symbols[0] + 24 * symbol)[0])
        code = parts.get(".text." + name)
        if code is not None:
            accesses = stack_accesses(cubin[code[0]:code[0] + code[1]], architecture)
            yield architecture, name, code[1], registers, info.get(FRAME, {}).get(symbol, 0), accesses


def kernels_of(path):
    return [kernel for cubin in cubins(open(path, "rb").read()) for kernel in kernels(cubin)]


def print_worst(paths):
    """Registers / bytes of stack / stack accesses in a loop that multiplies: the most of any kernel each."""
    worst, architectures = {}, set()
    for path in paths:
        file = path.rsplit("/", 1)[-1].split(".")[0]
        for architecture, _, _, registers, stack, (_, inner) in kernels_of(path):
            architectures.add(architecture)
            most = worst.setdefault(file, {}).get(architecture, (0, 0, 0))
            worst[file][architecture] = tuple(map(max, most, (registers, stack, inner)))
    columns = sorted(architectures)
    print("| file | " + " | ".join(f"sm_{a}" for a in columns) + " |")
    print("|---|" + "---|" * len(columns))
    for file, numbers in sorted(worst.items()):
        texts = (" / ".join(map(str, numbers[a])) if a in numbers else "" for a in columns)
        print(f"| {file} | " + " | ".join(texts) + " |")


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    if sys.argv[1] == "--worst":
        return print_worst(sys.argv[2:])
    rows = [kernel for path in sys.argv[1:] for kernel in kernels_of(path)]
    names = subprocess.run(["c++filt"], input="\n".join(r[1] for r in rows), capture_output=True, text=True, check=True)
    print("  sm    code  registers  stack  accesses  in a loop  kernel")
    for (architecture, _, code, registers, stack, (all, inner)), name in zip(rows, names.stdout.splitlines()):
        name = name.replace("foresay::kernels::", "").replace("cuda::", "").replace("(anonymous namespace)::", "")
        name = re.sub(r"\(\w+\)(?=\d)", "", name).removeprefix("void ").split("(")[0]
        print(f"{architecture:4} {code:7} {registers:10} {stack:6} {all:9} {inner:10}  {name}")


if __name__ == "__main__":
    main()
