"""Shows tensors in GDB and LLDB: dtype, shape, and elements, or the call that a pending one waits for.

    (gdb)  source PREFIX/share/fermata/fermata_debugger.py
    (lldb) command script import PREFIX/share/fermata/fermata_debugger.py

Reads memory only: nothing is computed, and the program need not be able to go on. The program has to be compiled with
debug information; the library need not be. Compiled kernels have names in both debuggers without this file.
"""
import struct

MOST_ELEMENTS = 8
FORMATS = {"boolean": "?", "i8": "b", "u8": "B", "i16": "h", "u16": "H", "i32": "i", "u32": "I", "i64": "q", "u64": "Q",
           "f16": "e", "f32": "f", "f64": "d", "c64": "ff", "c128": "dd"}
NAMES = {"boolean": "bool"}


def number(value):
    return format(value, ".6g") if isinstance(value, float) else str(value).lower()


def element(dtype, data):
    if dtype == "bf16":
        return number(struct.unpack("<f", b"\0\0" + data)[0])
    parts = struct.unpack("<" + FORMATS[dtype], data)
    return number(parts[0]) if len(parts) == 1 else f"{number(parts[0])}{parts[1]:+.6g}i"


def describe(tensor):
    """The text for a Tensor, given as a Value (below)."""
    impl = tensor["impl_"]
    if impl.address() == 0:
        return "undefined"
    node = impl["value"]
    if node.address() == 0:
        return "a view that has not been read yet"
    dtype, rank = node["dtype"].enumerator(), node["rank"].integer()
    extra = node["extra"]
    many = rank > 4
    sizes = [(extra["sizes"]["dims_"] if many else node["inline_sizes"])["_M_elems"].item(i).integer() for i in range(rank)]
    text = f"{NAMES.get(dtype, dtype)}[{', '.join(map(str, sizes))}]"
    storage = node["storage"]["_M_b"]["_M_p"]
    if storage.address() == 0:
        where = node["where"]["_M_impl"]
        text += f" pending: {node['op'].enumerator()}"
        if where.address() != 0:
            text += f" at {where['_M_file_name'].text()}:{where['_M_line'].integer()}"
        return text
    data = storage["data"].address()
    if node["backend"].enumerator() != "cpu" or data == 0:
        return text + f" on {node['backend'].enumerator()}"
    if dtype not in FORMATS and dtype != "bf16":
        return text
    width = 2 if dtype == "bf16" else struct.calcsize("<" + FORMATS[dtype])
    strides, offset = [], 0
    if extra.address() != 0 and extra["strided"].integer() != 0:
        strides = [extra["strides"]["dims_"]["_M_elems"].item(i).integer() for i in range(rank)]
        offset = extra["offset"].integer()
    else:
        step = 1
        for size in reversed(sizes):
            strides.insert(0, step)
            step *= size
    count = 1
    for size in sizes:
        count *= size
    shown, index = [], [0] * rank
    for _ in range(min(count, MOST_ELEMENTS)):
        at = offset + sum(i * s for i, s in zip(index, strides))
        shown.append(element(dtype, tensor.memory(data + at * width, width)))
        for axis in reversed(range(rank)):
            index[axis] += 1
            if index[axis] < sizes[axis]:
                break
            index[axis] = 0
    return text + " {" + ", ".join(shown) + (", ..." if count > MOST_ELEMENTS else "") + "}"


def safely(tensor):
    try:
        return describe(tensor)
    except Exception as error:  # pylint: disable=broad-except
        return f"<cannot be read: {error}>"


try:
    import gdb
except ImportError:
    gdb = None

if gdb is not None:
    class GdbValue:
        def __init__(self, value):
            self.value = value

        def __getitem__(self, name):
            value = self.value
            if value.type.strip_typedefs().code == gdb.TYPE_CODE_PTR:
                value = value.dereference()
            return GdbValue(value[name])

        def item(self, i):
            return GdbValue(self.value[i])

        def integer(self):
            return int(self.value)

        def address(self):
            return int(self.value)

        def enumerator(self):
            return str(self.value).split("::")[-1]

        def text(self):
            return self.value.string()

        def memory(self, address, size):
            return bytes(gdb.selected_inferior().read_memory(address, size))

    class TensorPrinter:
        def __init__(self, value):
            self.value = value

        def to_string(self):
            return safely(GdbValue(self.value))

    def gdb_printer(value):
        return TensorPrinter(value) if value.type.strip_typedefs().unqualified().name == "fermata::Tensor" else None

    gdb.pretty_printers.append(gdb_printer)


def lldb_summary(value, _internal):
    import lldb

    class LldbValue:
        def __init__(self, value):
            self.value = value

        def __getitem__(self, name):
            found = self.value.GetNonSyntheticValue()
            if found.GetType().IsPointerType():
                found = found.Dereference()
            return LldbValue(self.find(found, name))

        def find(self, value, name):
            found = value.GetChildMemberWithName(name)
            if found.IsValid():
                return found
            for i in range(value.GetNumChildren()):  # of a base class
                inner = value.GetChildAtIndex(i).GetChildMemberWithName(name)
                if inner.IsValid():
                    return inner
            raise KeyError(name)

        def item(self, i):
            return LldbValue(self.value.GetNonSyntheticValue().GetChildAtIndex(i))

        def integer(self):
            return self.value.GetValueAsSigned() if self.value.GetType().GetTypeFlags() & lldb.eTypeIsSigned else \
                self.value.GetValueAsUnsigned()

        def address(self):
            return self.value.GetValueAsUnsigned()

        def enumerator(self):
            return str(self.value.GetValue()).split("::")[-1]

        def text(self):
            return self.value.GetSummary().strip('"')

        def memory(self, address, size):
            error = lldb.SBError()
            data = self.value.GetProcess().ReadMemory(address, size, error)
            if not error.Success():
                raise RuntimeError(error)
            return data

    return safely(LldbValue(value.GetNonSyntheticValue()))


def __lldb_init_module(debugger, _internal):
    debugger.HandleCommand(f"type summary add -F {__name__}.lldb_summary fermata::Tensor")
