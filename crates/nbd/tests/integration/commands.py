"""Each command of libnbd against `vm/disk` (argv 1), the read-only `vm/old` (argv 2) and `vm/odd` (argv 3, if there
is one), and each bad request.

The devices begin with zeros, have segments of 64 KiB and survive two failures; `vm/odd` has a bad byte at 3 MiB.
"""

import errno
import sys

import nbd

KIB = 1024
MIB = 1024 * KIB
SIZE = 64 * MIB
SEGMENT = 64 * KIB


def attach(uri, contexts=("base:allocation", "gabion:failures-left"), structured=True):
    h = nbd.NBD()
    h.set_request_structured_replies(structured)
    if structured:
        for context in contexts:
            h.add_meta_context(context)
    # The server is to check requests, not the client.
    h.set_strict_mode(0)
    h.connect_uri(uri)
    return h


def fails(expected, call, *arguments):
    try:
        call(*arguments)
    except nbd.Error as error:
        assert error.errnum == expected, f"{call.__name__}{arguments}: {error.errnum} ({error.string})"
    else:
        raise AssertionError(f"{call.__name__}{arguments} succeeded")


def states(h, length, offset, flags=0):
    found = {}

    def extents(context, _offset, entries, _error):
        found[context] = list(zip(entries[0::2], entries[1::2]))

    h.block_status(length, offset, extents, flags)
    return found


def reads(h):
    assert h.pread(4 * KIB, 0) == bytearray(4 * KIB)
    h.pwrite(b"a" * KIB, 512)
    assert h.pread(2 * KIB, 0) == bytearray(512) + b"a" * KIB + bytearray(512)
    h.pwrite(b"b", SIZE - 1, nbd.CMD_FLAG_FUA)
    assert h.pread(1, SIZE - 1) == b"b"
    # Structured replies have a chunk for each segment, and holes as such; DF wants one chunk of data.
    for flags in (0, nbd.CMD_FLAG_DF):
        chunks = []

        def chunk(data, offset, status, _error, chunks=chunks):
            chunks.append((offset, len(data), status))

        h.pread_structured(2 * SEGMENT, 0, chunk, flags)
        if flags:
            assert chunks == [(0, 2 * SEGMENT, nbd.READ_DATA)], chunks
        else:
            assert chunks == [(0, SEGMENT, nbd.READ_DATA), (SEGMENT, SEGMENT, nbd.READ_HOLE)], chunks
    largest = bytearray(32 * MIB)
    largest[-1] = 7
    h.pwrite(largest, 16 * MIB)
    assert h.pread(32 * MIB, 16 * MIB) == largest


def zeros(h):
    h.pwrite(b"x" * 4 * SEGMENT, 8 * MIB)
    h.zero(SEGMENT, 8 * MIB)
    assert states(h, SEGMENT, 8 * MIB)["base:allocation"] == [(SEGMENT, 3)]
    h.zero(SEGMENT, 8 * MIB + SEGMENT, nbd.CMD_FLAG_NO_HOLE)
    assert states(h, SEGMENT, 8 * MIB + SEGMENT)["base:allocation"] == [(SEGMENT, 0)]
    h.zero(100, 8 * MIB + 2 * SEGMENT, nbd.CMD_FLAG_FUA)
    assert h.pread(101, 8 * MIB + 2 * SEGMENT) == bytearray(100) + b"x"
    h.zero(SEGMENT, 8 * MIB + 2 * SEGMENT, nbd.CMD_FLAG_FAST_ZERO)
    fails(errno.EOPNOTSUPP, h.zero, 100, 8 * MIB + 3 * SEGMENT, nbd.CMD_FLAG_FAST_ZERO)
    fast_but_stored = nbd.CMD_FLAG_FAST_ZERO | nbd.CMD_FLAG_NO_HOLE
    fails(errno.EOPNOTSUPP, h.zero, SEGMENT, 8 * MIB + 3 * SEGMENT, fast_but_stored)
    assert h.pread(SEGMENT, 8 * MIB + 3 * SEGMENT) == b"x" * SEGMENT
    h.trim(SEGMENT, 8 * MIB + 3 * SEGMENT)
    assert h.pread(4 * SEGMENT, 8 * MIB) == bytearray(4 * SEGMENT)
    # Longer than any request with bytes.
    h.trim(SIZE, 0)
    assert states(h, SIZE, 0)["base:allocation"] == [(SIZE, 3)]
    h.zero(SIZE, 0)


def rest(h):
    h.flush()
    h.cache(SIZE, 0)
    h.cache(1, 0)
    h.pwrite(b"y", SEGMENT)
    both = states(h, 3 * SEGMENT, 0)
    assert both["base:allocation"] == [(SEGMENT, 3), (SEGMENT, 0), (SEGMENT, 3)], both
    assert [state for _, state in both["gabion:failures-left"]] == [1 << 30, 2, 1 << 30], both
    one = states(h, 3 * SEGMENT, 100, nbd.CMD_FLAG_REQ_ONE)
    assert one["base:allocation"] == [(SEGMENT - 100, 3)], one
    assert h.pread(0, 0) == b""
    h.pwrite(b"", 0)
    h.zero(0, 0)
    h.trim(0, 0)


def bad_requests(h):
    for offset, length in ((SIZE, 1), (SIZE - 1, 2), (2**63, 1), (2**64 - 1, 1)):
        fails(errno.EINVAL, h.pread, length, offset)
        fails(errno.ENOSPC, h.pwrite, b"z" * length, offset)
        fails(errno.ENOSPC, h.zero, length, offset)
        fails(errno.EINVAL, h.trim, length, offset)
        fails(errno.EINVAL, h.cache, length, offset)
        fails(errno.EINVAL, states, h, length, offset)
    fails(errno.EINVAL, states, h, 0, 0)
    fails(errno.EINVAL, h.pread, 4, 0, nbd.CMD_FLAG_NO_HOLE)
    fails(errno.EINVAL, h.pwrite, b"z", 0, nbd.CMD_FLAG_DF)
    fails(errno.EINVAL, h.flush, nbd.CMD_FLAG_REQ_ONE)
    # One byte more than a request may have; the connection stays usable.
    fails(errno.EINVAL, h.pread, 32 * MIB + 1, 0)
    fails(errno.EOVERFLOW, h.pread_structured, 32 * MIB + 1, 0, lambda *_: None, nbd.CMD_FLAG_DF)
    fails(errno.EINVAL, h.pwrite, bytearray(32 * MIB + 1), 0)
    assert h.pread(1, 0) == b"\0"


def read_only(uri):
    h = attach(uri)
    assert h.is_read_only()
    assert h.pread(10, 0) == bytearray(10)
    fails(errno.EPERM, h.pwrite, b"z", 0)
    fails(errno.EPERM, h.zero, 1, 0)
    fails(errno.EPERM, h.trim, 1, 0)
    h.flush()
    h.shutdown()


def device_errors(uri):
    h = attach(uri)
    fails(errno.EIO, h.pread, 4 * KIB, 3 * MIB)
    fails(errno.ENOSPC, h.pwrite, b"zz", 3 * MIB - 1)
    assert h.pread(1, 0) == b"\0"
    h.shutdown()


def many_at_once(uri):
    h = attach(uri)
    for at in range(256):
        h.aio_pwrite(bytearray([at]) * 4 * KIB, at * 8 * KIB)
    while h.aio_in_flight() > 0:
        h.poll(-1)
    bytes_of = [h.pread(1, at * 8 * KIB)[0] for at in range(256)]
    assert bytes_of == list(range(256))
    h.shutdown()


def main(disk, old, odd=None):
    h = attach(disk)
    assert h.get_size() == SIZE and h.can_multi_conn() and h.can_fast_zero()
    for part in (reads, zeros, rest, bad_requests):
        part(h)
    h.shutdown()
    plain = attach(disk, structured=False)
    assert not plain.get_structured_replies_negotiated() and not plain.can_df()
    plain.pwrite(b"q", 0)
    # Bytes and a hole in one piece.
    assert plain.pread(3 * SEGMENT, 0) == b"q" + bytearray(SEGMENT - 1) + b"y" + bytearray(2 * SEGMENT - 1)
    fails(errno.EINVAL, plain.pread, 1, SIZE)
    plain.shutdown()
    read_only(old)
    if odd:
        device_errors(odd)
    many_at_once(disk)
    print("all commands done")


main(*sys.argv[1:])
