"""The program beside which test_crash_cycles.py kills servers and mounts: writes through a mount, and logs elsewhere.

Arguments: directory in the mount, directory for the log, seed. The log has a line before each call (`begin`), and one
after it returned (`done`) or failed (`failed`), so that it tells what was acknowledged. Ends when `stop` is there, or
with exit code 3 when its mount has ended.
"""

import errno
import os
import random
import sys
from pathlib import Path

FILES = 3
BLOCK = 5000  # no divisor of a stripe unit or a page
BLOCKS = 60


def content(seed, number, length=BLOCK):
    """The bytes that write `number` puts into its block."""
    return random.Random(f"{seed}-{number}").randbytes(length)


def main():
    directory, notes, seed = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
    choice = random.Random(seed)
    log = os.open(notes / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def attempt(number, what, call):
        os.write(log, f"begin {number} {what}\n".encode())
        try:
            call()
        except OSError as e:
            os.write(log, f"failed {number} {errno.errorcode[e.errno]}\n".encode())
            if e.errno in (errno.ENOTCONN, errno.ECONNABORTED):
                sys.exit(3)
        else:
            os.write(log, f"done {number}\n".encode())

    def small(number):
        path = directory / f"small-{number}"
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        try:
            os.write(fd, content(seed, number, 100))
        finally:
            os.close(fd)

    files = [os.open(directory / f"file-{k}", os.O_RDWR | os.O_CREAT) for k in range(FILES)]
    number = 0
    while not (notes / "stop").exists():
        number += 1
        file, block = choice.randrange(FILES), choice.randrange(BLOCKS)
        match number % 16:
            case 0:
                attempt(number, f"sync {file} -", lambda f=file: os.fsync(files[f]))
            case 8:
                attempt(number, "small - -", lambda n=number: small(n))
            case _:
                data = content(seed, number)
                attempt(
                    number, f"write {file} {block}", lambda f=file, b=block, d=data: os.pwrite(files[f], d, b * BLOCK)
                )


if __name__ == "__main__":
    main()
