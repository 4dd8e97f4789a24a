#!/usr/bin/env python3
"""bench/kernel_resources.py FILE..: registers and stack of every kernel in object files or programs.

One line for each architecture and kernel: bytes of code, registers of a thread, bytes of its stack. A stack is what
the compiler spilled, or an array that it could not keep in registers; the decode kernel's loops must have neither.
Reads the ELF files (cubins) that nvcc leaves in the section .nv_fatbin; needs c++filt, and nothing of CUDA.
"""
import re
import struct
import subprocess
import sys

CUDA_MACHINE = 190
REGISTERS, FRAME = 0x2F, 0x11  # attributes of .nv.info


def cubins(data):
    at = data.find(b"\x7fELF", 1)
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


def kernels(cubin):
    """(architecture, name, bytes of code, registers, bytes of stack) of each kernel."""
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
            yield architecture, name, code[1], registers, info.get(FRAME, {}).get(symbol, 0)


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    rows = [kernel for path in sys.argv[1:] for cubin in cubins(open(path, "rb").read()) for kernel in kernels(cubin)]
    names = subprocess.run(["c++filt"], input="\n".join(r[1] for r in rows), capture_output=True, text=True, check=True)
    print("  sm    code  registers  stack  kernel")
    for (architecture, _, code, registers, stack), name in zip(rows, names.stdout.splitlines()):
        name = name.replace("foresay::kernels::", "").replace("cuda::", "").replace("(anonymous namespace)::", "")
        name = re.sub(r"\(\w+\)(?=\d)", "", name).removeprefix("void ").split("(")[0]
        print(f"{architecture:4} {code:7} {registers:10} {stack:6}  {name}")


if __name__ == "__main__":
    main()
