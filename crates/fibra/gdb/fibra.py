"""gdb commands for programs that use fibra: list the fibers of a stopped process or of a core file, and look at the stack of a parked one.

    (gdb) source crates/fibra/gdb/fibra.py
    (gdb) fibra fibers               every fiber: id, name, state, what it waits for, where it was spawned
    (gdb) fibra bt 7                 the stack of fiber 7
    (gdb) fibra select 7             up, down, info locals and so on now work on that stack
    (gdb) fibra thread               back to the thread's own stack

The script reads a map that fibra keeps in every program (`fibra::inspect::debugger::DEBUGGER_MAP`), so it needs the program's symbols, but no
debug information of fibra. It changes nothing in the process. x86_64 and fibra's own switch only.
"""

import re

import gdb
from gdb.unwinder import Unwinder, register_unwinder

VERSION = 1
MAP = "fibra::inspect::debugger::DEBUGGER_MAP"
STATES = {1: "RUNNABLE", 2: "RUNNING", 3: "PARKING", 4: "PARKED"}
CHUNKS = 24
TIMED = 0x80


def word(address, index=0):
    data = gdb.selected_inferior().read_memory(address + 8 * index, 8)
    return int.from_bytes(bytes(data), "little")


def byte(address):
    return bytes(gdb.selected_inferior().read_memory(address, 1))[0]


def text(address, length):
    return bytes(gdb.selected_inferior().read_memory(address, length)).decode("utf-8", "replace")


class Map:
    """Where everything lies in this program: the fields of `FiberMap`, in their order."""

    FIELDS = ("version frames chunks made first_chunk frame_size word context stack id site extras name user_area "
              "reason object wait_site since status status_len").split()

    def __init__(self):
        # By name where there is debug information; else among the plain symbols, which have a hash behind the name.
        listed = gdb.execute("info variables DEBUGGER_MAP", to_string=True)
        plain = re.search(r"0x([0-9a-f]+)\s+" + MAP, listed)
        if plain:
            address = int(plain.group(1), 16)
        elif MAP in listed:
            address = self.of_debug_information()
        else:
            raise gdb.GdbError("no fibers here: the program does not use fibra, was stripped of its symbols, or has a fibra without "
                               "this map")
        for index, field in enumerate(self.FIELDS):
            setattr(self, field, word(address, index))
        if self.version != VERSION:
            raise gdb.GdbError("the program's map has version %d, this script knows %d: take the script of the fibra that the "
                               "program was built with" % (self.version, VERSION))
        self.reasons = address + 8 * len(self.FIELDS)

    @staticmethod
    def of_debug_information():
        language = gdb.parameter("language")
        gdb.execute("set language c", to_string=True)
        try:
            return int(gdb.parse_and_eval("(unsigned long) &'%s'" % MAP))
        finally:
            gdb.execute("set language %s" % language, to_string=True)

    def reason_words(self, number):
        at = self.reasons + 16 * number
        return text(word(at), word(at, 1)) or "waiting (reason %d)" % number


def location(address):
    """A `std::panic::Location`, whose layout is std's own: file (address and length), line, column. None if it does not look like one."""
    if address == 0:
        return None
    try:
        length = word(address, 1)
        name = text(word(address), length - 1 if 1 < length < 4096 else 0).rstrip("\0")
        numbers = word(address, 2)
    except gdb.MemoryError:
        return None
    if not name.endswith(".rs"):
        try:
            name = text(word(address), length)
        except gdb.MemoryError:
            return None
    if not name.endswith(".rs"):
        return None
    return "%s:%d:%d" % (name, numbers & 0xFFFFFFFF, numbers >> 32)


class Fiber:
    def __init__(self, places, frame):
        self.frame = frame
        bits = word(frame + places.word)
        self.state = STATES.get(bits & 0xF)
        self.id = word(frame + places.id)
        self.context = word(frame + places.context)
        self.stack = word(frame + places.stack)
        self.spawned = location(word(frame + places.site))
        self.name, self.status, self.wait = None, "", None
        extras = word(frame + places.extras)
        if extras:
            name = extras + places.name
            if word(name):
                self.name = text(word(name) + 16, word(name, 1))
        if self.stack and self.state:
            top = self.stack + places.user_area
            self.status = text(top + places.status, min(byte(top + places.status_len), 31))
            reason = byte(top + places.reason)
            if reason:
                self.wait = places.reason_words(reason & ~TIMED)
                self.wait += ", with a deadline" if reason & TIMED else ""
                self.wait += " (0x%x)" % word(top + places.object) if word(top + places.object) else ""
                self.wait += " at %s" % location(word(top + places.wait_site))

    def registers(self):
        """What the switch has kept of a parked fiber: rip, rsp, rbp, rbx (`fiber/context/x86_64.rs` has the picture)."""
        if self.state != "PARKED" or not self.stack:
            raise gdb.GdbError("fiber %d is %s: only the stack of a parked fiber lies still. (One that is RUNNING is on the stack of its "
                               "worker's thread: `info threads`.)" % (self.id, self.state))
        at = self.context
        return {"rip": word(at - 24), "rsp": at, "rbp": word(at - 16), "rbx": word(at - 8)}

    def __str__(self):
        name = ' "%s"' % self.name if self.name else ""
        state = self.state if self.stack else self.state + ", not started"
        status = ' "%s"' % self.status if self.status else ""
        wait = ": %s" % self.wait if self.wait and self.state in ("PARKED", "PARKING") else ""
        return "fiber #%d%s %s%s%s, spawned at %s" % (self.id, name, state, status, wait, self.spawned)


def fibers():
    places = Map()
    made = word(places.frames + places.made)
    before = 0
    for chunk in range(CHUNKS):
        if before >= made:
            return
        count = min(places.first_chunk << chunk, made - before)
        start = word(places.frames + places.chunks, chunk)
        for index in range(count):
            frame = start + index * places.frame_size
            if word(frame + places.word) & 0xF in STATES:
                yield Fiber(places, frame)
        before += places.first_chunk << chunk


def find(argument):
    try:
        wanted = int(argument.strip().lstrip("#"))
    except ValueError:
        raise gdb.GdbError("which fiber? Say its number, as `fibra fibers` lists it")
    for fiber in fibers():
        if fiber.id == wanted:
            return fiber
    raise gdb.GdbError("there is no fiber #%d: it has ended, or never was (`fibra fibers` lists those that are)" % wanted)


class Place:
    """Names a frame to gdb."""

    def __init__(self, sp, pc):
        self.sp, self.pc = sp, pc


class OfFiber(Unwinder):
    """Shows a parked fiber as the caller of the thread's innermost frame, while one is selected. Nothing is written to the process."""

    def __init__(self):
        super().__init__("fibra")
        self.saved = None

    def __call__(self, pending):
        if self.saved is None or pending.level() != 0:
            return None
        kind = pending.read_register("rsp").type
        # The frame's name is an address just inside of the fiber's stack: gdb stops where a caller seems to lie further in than its callee.
        inside = gdb.Value(self.saved["rsp"] - 128).cast(kind)
        info = pending.create_unwind_info(Place(inside, pending.read_register("rip")))
        for register, value in self.saved.items():
            info.add_saved_register(register, gdb.Value(value).cast(kind))
        return info

    def show(self, registers):
        self.saved = registers
        gdb.invalidate_cached_frames()


UNWINDER = OfFiber()
register_unwinder(None, UNWINDER, replace=True)
# What continues or changes thread ends the view: frame 0 is another one then.
gdb.events.cont.connect(lambda _: UNWINDER.show(None))


class Fibra(gdb.Command):
    """Fibers of the program: fibra fibers, fibra bt ID, fibra select ID, fibra thread."""

    def __init__(self):
        super().__init__("fibra", gdb.COMMAND_STACK, prefix=True)


class Fibers(gdb.Command):
    """Lists every fiber: id, name, state, what it waits for, where it was spawned."""

    def __init__(self):
        super().__init__("fibra fibers", gdb.COMMAND_STACK)

    def invoke(self, argument, from_tty):
        count = 0
        for fiber in sorted(fibers(), key=lambda fiber: fiber.id):
            print(fiber)
            count += 1
        print("%d fibers" % count)


class Backtrace(gdb.Command):
    """fibra bt ID: the stack of a parked fiber."""

    def __init__(self):
        super().__init__("fibra bt", gdb.COMMAND_STACK)

    def invoke(self, argument, from_tty):
        fiber = find(argument)
        registers = fiber.registers()
        print(fiber)
        try:
            UNWINDER.show(registers)
            lines = gdb.execute("bt", to_string=True).splitlines()
        finally:
            UNWINDER.show(None)
        # Frame 0 is the thread's own.
        print("\n".join(line for line in lines if not line.startswith("#0 ")))


class Select(gdb.Command):
    """fibra select ID: frames 1 and up are those of a parked fiber, until the program goes on or `fibra thread`."""

    def __init__(self):
        super().__init__("fibra select", gdb.COMMAND_STACK)

    def invoke(self, argument, from_tty):
        fiber = find(argument)
        UNWINDER.show(fiber.registers())
        print(fiber)
        gdb.execute("frame 1")


class Thread(gdb.Command):
    """fibra thread: back to the stack of the selected thread."""

    def __init__(self):
        super().__init__("fibra thread", gdb.COMMAND_STACK)

    def invoke(self, argument, from_tty):
        UNWINDER.show(None)
        gdb.execute("frame 0")


Fibra()
Fibers()
Backtrace()
Select()
Thread()
