# A process with one open file, which does what each line of its input says and prints the outcome: "ok", a value or
# the name of an error. Lines: lockf MODE START LENGTH, flock MODE (MODE: sh, ex, un, with + to wait), test MODE START
# LENGTH, read START LENGTH, write START TEXT, reopen, add PATH COUNT (SQLite).
import errno, fcntl, os, struct, sys

MODES = {"sh": fcntl.LOCK_SH, "ex": fcntl.LOCK_EX, "un": fcntl.LOCK_UN}
TYPES = {"sh": fcntl.F_RDLCK, "ex": fcntl.F_WRLCK}
NAMES = {fcntl.F_RDLCK: "sh", fcntl.F_WRLCK: "ex", fcntl.F_UNLCK: "un"}


def flags(mode):
    waits = mode.endswith("+")
    mode = MODES[mode.rstrip("+")]
    return mode if waits or mode == fcntl.LOCK_UN else mode | fcntl.LOCK_NB


def add(path, count):
    import sqlite3

    base = sqlite3.connect(path, timeout=60, isolation_level=None)
    for _ in range(count):
        base.execute("begin immediate")
        (value,) = base.execute("select value from counter").fetchone()
        base.execute("update counter set value = ?", (value + 1,))
        base.execute("insert into made values (?)", (value + 1,))
        base.execute("commit")
    base.close()


def run(words):
    global file
    match words:
        case ["lockf", mode, start, length]:
            fcntl.lockf(file, flags(mode), int(length), int(start))
        case ["flock", mode]:
            fcntl.flock(file, flags(mode))
        case ["test", mode, start, length]:
            asked = struct.pack("hhqqi4x", TYPES[mode], 0, int(start), int(length), 0)
            found = fcntl.fcntl(file, fcntl.F_GETLK, asked)
            mode, _, start, length, process = struct.unpack("hhqqi4x", found)
            return NAMES[mode] if mode == fcntl.F_UNLCK else f"{NAMES[mode]} {start} {length} {process}"
        case ["read", start, length]:
            return os.pread(file, int(length), int(start)).decode()
        case ["write", start, text]:
            os.pwrite(file, text.encode(), int(start))
        case ["reopen"]:
            try:
                os.close(file)
            finally:
                file = os.open(sys.argv[1], os.O_RDWR)
        case ["add", path, count]:
            add(path, int(count))
    return "ok"


file = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT, 0o644)
print("ready", flush=True)
for line in sys.stdin:
    try:
        print(run(line.split()), flush=True)
    except OSError as error:
        print(errno.errorcode[error.errno], flush=True)
