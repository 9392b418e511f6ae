"""Marks a library so that the loader runs its constructor before all others: python3 initfirst.py LIBRARY

That is the linker's `-z initfirst`, which not every linker has.
"""

import struct
import sys
from pathlib import Path

PT_DYNAMIC = 2
DT_FLAGS_1 = 0x6FFFFFFB
DF_1_INITFIRST = 0x20


def marked(elf):
    """The bytes of an ELF file of 64 bits, little-endian, with the flag set."""
    if elf[:6] != b"\x7fELF\x02\x01":
        raise SystemExit("no ELF file of 64 bits, little-endian")
    (headers,) = struct.unpack_from("<Q", elf, 32)
    size, count = struct.unpack_from("<HH", elf, 54)
    for header in range(headers, headers + size * count, size):
        kind, _, offset, _, _, length = struct.unpack_from("<IIQQQQ", elf, header)
        if kind != PT_DYNAMIC:
            continue
        for entry in range(offset, offset + length, 16):
            tag, value = struct.unpack_from("<QQ", elf, entry)
            if tag == DT_FLAGS_1:
                struct.pack_into("<Q", elf, entry + 8, value | DF_1_INITFIRST)
                return elf
    raise SystemExit("no DT_FLAGS_1: link with -z now")


if __name__ == "__main__":
    path = Path(sys.argv[1])
    path.write_bytes(marked(bytearray(path.read_bytes())))
