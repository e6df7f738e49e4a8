"""Random operations on one file through two mounts in turn, against a model in memory.

    two-mounts.py COUNT SEED PATH PATH

Each operation opens the file in one mount and closes it, so it sees what the last one in the other mount has closed.
"""

import ctypes
import mmap
import os
import random
import sys

LENGTH_MAX = 1 << 20
REQUEST_MAX = 1 << 17
KEEP_SIZE_AND_PUNCH = 0x01 | 0x02

libc = ctypes.CDLL(None, use_errno=True)
libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]


class Model:
    def __init__(self, seed):
        self.random = random.Random(seed)
        self.bytes = bytearray()

    def range(self, end):
        """A range that begins below `end`."""
        offset = self.random.randrange(end)
        return offset, self.random.randint(1, min(REQUEST_MAX, LENGTH_MAX - offset))

    def set(self, offset, contents):
        if offset > len(self.bytes):
            self.bytes.extend(bytes(offset - len(self.bytes)))
        self.bytes[offset : offset + len(contents)] = contents

    def read(self, path):
        if not self.bytes:
            return
        offset, length = self.range(len(self.bytes))
        descriptor = os.open(path, os.O_RDONLY)
        found = os.pread(descriptor, length, offset)
        os.close(descriptor)
        self.compare(path, offset, found, self.bytes[offset : offset + length])

    def read_mapped(self, path):
        if not self.bytes:
            return
        offset, length = self.range(len(self.bytes))
        with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapped:
            found = mapped[offset : offset + length]
        self.compare(path, offset, found, self.bytes[offset : offset + length])

    def size(self, path):
        # Without an open, a mount may tell attributes of a moment ago.
        descriptor = os.open(path, os.O_RDONLY)
        found = os.fstat(descriptor).st_size
        os.close(descriptor)
        assert found == len(self.bytes), f"{path}: {found} bytes, expected {len(self.bytes)}"

    def write(self, path):
        offset, length = self.range(LENGTH_MAX)
        contents = self.random.randbytes(length)
        descriptor = os.open(path, os.O_WRONLY)
        written = os.pwrite(descriptor, contents, offset)
        os.close(descriptor)
        assert written == length, f"{path}: {written} of {length} bytes written"
        self.set(offset, contents)

    def write_mapped(self, path):
        if not self.bytes:
            return
        offset, length = self.range(len(self.bytes))
        contents = self.random.randbytes(min(length, len(self.bytes) - offset))
        with open(path, "r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
            mapped[offset : offset + len(contents)] = contents
            mapped.flush()
        self.set(offset, contents)

    def append(self, path):
        if len(self.bytes) == LENGTH_MAX:
            return
        length = self.random.randint(1, min(REQUEST_MAX, LENGTH_MAX - len(self.bytes)))
        contents = self.random.randbytes(length)
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND)
        written = os.write(descriptor, contents)
        os.close(descriptor)
        assert written == length, f"{path}: {written} of {length} bytes appended"
        self.set(len(self.bytes), contents)

    def truncate(self, path):
        length = self.random.randrange(LENGTH_MAX)
        descriptor = os.open(path, os.O_WRONLY)
        os.ftruncate(descriptor, length)
        os.close(descriptor)
        del self.bytes[length:]
        self.set(length, b"")

    def punch(self, path):
        if not self.bytes:
            return
        offset, length = self.range(len(self.bytes))
        descriptor = os.open(path, os.O_WRONLY)
        failed = libc.fallocate(descriptor, KEEP_SIZE_AND_PUNCH, offset, length)
        os.close(descriptor)
        assert not failed, f"{path}: no hole: {os.strerror(ctypes.get_errno())}"
        self.set(offset, bytes(min(length, len(self.bytes) - offset)))

    @staticmethod
    def compare(path, offset, found, expected):
        if found != expected:
            pairs = enumerate(zip(found, expected))
            first = next((at for at, (one, other) in pairs if one != other), min(len(found), len(expected)))
            raise AssertionError(f"{path}: byte {offset + first} of {len(expected)} from {offset} on is wrong")


def main():
    count, seed, *paths = sys.argv[1:]
    model = Model(int(seed))
    kinds = [model.read] * 6 + [model.read_mapped] * 3 + [model.size] * 2 + [model.write] * 6
    kinds += [model.write_mapped] * 3 + [model.append] * 3 + [model.truncate, model.punch]
    os.close(os.open(paths[0], os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))
    for number in range(int(count)):
        kind = model.random.choice(kinds)
        try:
            kind(paths[number % 2])
        except Exception as error:
            sys.exit(f"seed {seed}, operation {number}, {kind.__name__} of {paths[number % 2]}: {error!r}")


main()
