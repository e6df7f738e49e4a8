"""Clients of an image for the tests in nbd.rs: the first argument names one."""

import errno
import json
import signal
import sys

import nbd

KIB = 1024
BLOCK = 4 * KIB
BLOCK_COUNT = 512
DEPTH = 16


def attach(uri):
    h = nbd.NBD()
    h.set_strict_mode(0)
    h.connect_uri(uri)
    return h


def content(block, sequence):
    """The bytes of a block after its write of this number; 0 is before the first one."""
    if sequence == 0:
        return bytearray(BLOCK)
    return bytearray(f"{block}.{sequence}.".encode().ljust(16, b"-") * (BLOCK // 16))


def write(uri, state):
    """Writes blocks in turn, many at a time, until the server goes; each acknowledgement is one line of stdout.

    The file `state` gets, for each block, the number of its last acknowledged write and of the last one sent.
    """
    h = attach(uri)
    # The first rounds fill holes: a stride visits all blocks in a mixed order.
    acknowledged, sent = [0] * BLOCK_COUNT, [0] * BLOCK_COUNT
    try:
        turn = 0
        while True:
            while h.aio_in_flight() < DEPTH:
                block = turn * 197 % BLOCK_COUNT
                turn += 1
                sequence = sent[block] + 1
                sent[block] = sequence

                def done(error, block=block, sequence=sequence):
                    if error.value == 0:
                        acknowledged[block] = sequence
                        print(block, sequence, flush=True)
                    return 1

                h.aio_pwrite(content(block, sequence), block * BLOCK, done)
            h.poll(-1)
    except nbd.Error:
        with open(state, "w") as file:
            json.dump([acknowledged, sent], file)


def verify(uri, state):
    """Checks that each block has its last acknowledged write, or a later one that was sent."""
    with open(state) as file:
        acknowledged, sent = json.load(file)
    h = attach(uri)
    for block in range(BLOCK_COUNT):
        got = h.pread(BLOCK, block * BLOCK)
        allowed = range(acknowledged[block], sent[block] + 1)
        assert any(got == content(block, sequence) for sequence in allowed), (block, bytes(got[:32]), list(allowed))
    print(sum(1 for number in acknowledged if number), "blocks verified")


def wait(uri):
    """Writes a block when a line comes on stdin, which may take until the cluster answers again."""
    h = attach(uri)
    print("attached", flush=True)
    sys.stdin.readline()
    h.aio_pwrite(content(1, 1), BLOCK)
    h.poll(0)
    print("sent", flush=True)
    while h.aio_in_flight() > 0:
        h.poll(-1)
    assert h.pread(BLOCK, BLOCK) == content(1, 1)
    print("done", flush=True)


def grow(uri):
    """Goes on with an old size while the image grows, when a line comes on stdin, and sees the new one when attached anew."""
    h = attach(uri)
    size = h.get_size()
    print("attached", flush=True)
    sys.stdin.readline()
    h.pwrite(content(2, 2), size - BLOCK)
    try:
        h.pwrite(b"x", size)
    except nbd.Error as error:
        assert error.errnum == errno.ENOSPC
    else:
        raise AssertionError("a write behind the known end")
    other = attach(uri)
    assert other.get_size() == 2 * size, other.get_size()
    other.pwrite(b"x", 2 * size - 1)
    assert other.pread(BLOCK, size - BLOCK) == content(2, 2)
    assert h.pread(BLOCK, size - BLOCK) == content(2, 2)
    print("done", flush=True)


def full(uri):
    """Fills an image until its disks are full: ENOSPC, and reads go on."""
    h = attach(uri)
    piece = bytearray(content(3, 3)) * 256
    for offset in range(0, h.get_size(), len(piece)):
        try:
            h.pwrite(piece, offset)
        except nbd.Error as error:
            assert error.errnum == errno.ENOSPC, error
            print("full", flush=True)
            break
    else:
        raise AssertionError("the disk never got full")
    assert h.pread(BLOCK, h.get_size() - BLOCK) == bytearray(BLOCK)


def fenced(uri):
    """Sends writes when a line comes on stdin, and more at the next line, when the server stands still. Another server takes
    the image over: the first ones may succeed before that, and all others fail.
    """
    h = attach(uri)
    h.pwrite(content(1, 1) + content(2, 1), BLOCK)
    print("attached", flush=True)
    first, more = {}, {}

    def send(blocks, errors):
        sys.stdin.readline()
        for block in blocks:

            def done(error, block=block):
                errors[block] = error.value
                return 1

            h.aio_pwrite(content(block, 2), block * BLOCK, done)
        h.poll(0)
        print("sent", flush=True)

    # Some of them fill holes.
    send(range(0, 64, 2), first)
    send(range(0, 8), more)
    while h.aio_in_flight() > 0:
        h.poll(-1)
    assert set(first.values()) <= {0, errno.EIO}, first
    assert set(more.values()) == {errno.EIO}, more
    try:
        h.pwrite(content(1, 3), BLOCK)
    except nbd.Error as error:
        assert error.errnum == errno.EIO, error
    else:
        raise AssertionError("a write after the image was taken over")
    print("refused", flush=True)


def own(uri):
    """Writes some blocks, and finds the whole image unchanged when a line comes on stdin."""
    h = attach(uri)
    for block in range(4):
        h.pwrite(content(block, 9), block * BLOCK)
    before = h.pread(64 * BLOCK, 0)
    print("written", flush=True)
    sys.stdin.readline()
    assert h.pread(64 * BLOCK, 0) == before
    print("unchanged", flush=True)


def share(one, other):
    """Attaches one image by two names, and writes and reads by both in turn."""
    first, second = attach(one), attach(other)
    for block in range(4):
        for h, sequence in [(first, 1), (second, 2)]:
            h.pwrite(content(block, sequence), block * BLOCK)
            assert first.pread(BLOCK, block * BLOCK) == content(block, sequence)
            assert second.pread(BLOCK, block * BLOCK) == content(block, sequence)
    print("shared", flush=True)


# A test fails rather than wait for ever.
signal.alarm(120)
CLIENTS = {
    "write": write,
    "verify": verify,
    "wait": wait,
    "grow": grow,
    "full": full,
    "fenced": fenced,
    "own": own,
    "share": share,
}
CLIENTS[sys.argv[1]](*sys.argv[2:])
