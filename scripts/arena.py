# SPDX-License-Identifier: Apache-2.0
"""Arenas, slots and reloads of libarena_shim.so for Python, in one file, with the standard library.

    import arena

    with arena.reload() as r:                           # everything; or layers=[...], role="draft"
        for path, tensors in checkpoint:
            with arena.layer(path) as a:
                r.receive(path + ".weight", bytes=tensors.nbytes)
                w = a.put("W_UV", derive(tensors))      # a Slot; bind it, not what was derived
                module.W_UV = w.torch()
                a.commit()
    print(r.report["verdict"])

The library is preloaded (LD_PRELOAD); nothing is imported that the process does not use already.
When it is not there, or turned off, the first call warns, and everything does nothing: put() and
bind() give back what they got, get_or_alloc() allocates as if there were no slots, object() calls
the factory. require(), or required=True, makes that an error instead.

A Slot is a view of device memory that stays where it is for the life of the process. It has
__cuda_array_interface__ (version 3), which torch.as_tensor(), cupy.asarray() and
jax.numpy.asarray() take without a copy.

Calls may be made from any thread; the current layer and the tags are each thread's own. The stream
is the current one of PyTorch or CuPy if they are loaded, else the legacy default stream.
"""

import contextlib
import ctypes
import enum
import json
import sys
import threading
import warnings
import weakref

__all__ = ["Error", "Init", "Layer", "Refused", "Reload", "Slot", "Snapshot", "Verdict", "abi",
           "available", "cache", "cache_flushed", "current", "layer", "manifest", "receive",
           "reload", "require", "status", "tag"]

MAX_DIMS = 8
_VALUE, _SCRATCH = 0, 1             # enum arena_kind
_STAGED, _DIRECT = 0, 1             # enum arena_publish
_SPEC_SCRATCH = 1                   # enum arena_spec_flags
_ABSENT, _INVALID, _REFUSED, _UNSAFE = -1, -2, -8, -9


class Init(enum.IntEnum):
    """What get_or_alloc() does to the contents."""
    EMPTY = 0
    ZERO = 1
    PRESERVE = 2


class Verdict(enum.IntEnum):
    PASS = 0
    FAIL = 1
    UNPROVEN = 2


class Error(RuntimeError):
    """A call failed; nothing changed. code is an enum arena_err of arena.h."""

    def __init__(self, code, text):
        super().__init__(text)
        self.code = code


class Refused(Error):
    """Findings. report is the line that was written to the report file, as a dict."""

    def __init__(self, code, text, report=None):
        super().__init__(code, text)
        self.report = report


# ---- the library ----

class _Spec(ctypes.Structure):
    _fields_ = [("struct_bytes", ctypes.c_uint32), ("device", ctypes.c_int32),
                ("bytes", ctypes.c_uint64), ("ndim", ctypes.c_uint32), ("flags", ctypes.c_uint32),
                ("shape", ctypes.c_int64 * MAX_DIMS), ("strides", ctypes.c_int64 * MAX_DIMS),
                ("dtype", ctypes.c_char * 16), ("layout", ctypes.c_char * 32)]


class _Scope(ctypes.Structure):
    _fields_ = [("struct_bytes", ctypes.c_uint32), ("layers_count", ctypes.c_uint32),
                ("layers", ctypes.POINTER(ctypes.c_char_p)), ("sources_count", ctypes.c_uint32),
                ("reserved", ctypes.c_uint32), ("sources", ctypes.POINTER(ctypes.c_char_p)),
                ("role", ctypes.c_char_p)]


class _Status(ctypes.Structure):
    _fields_ = [("struct_bytes", ctypes.c_uint32), ("verdict", ctypes.c_int32),
                ("unsafe", ctypes.c_int32), ("reload_open", ctypes.c_int32),
                ("reload_id", ctypes.c_uint64), ("generation", ctypes.c_uint64),
                ("arenas", ctypes.c_uint64), ("slots", ctypes.c_uint64),
                ("storage_bytes", ctypes.c_uint64), ("shadow_peak_bytes", ctypes.c_uint64),
                ("findings_error", ctypes.c_uint64), ("findings_warn", ctypes.c_uint64)]


_FACTORY = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p))
_FLUSH = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_uint64)
_p, _s, _u64, _int = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_uint64, ctypes.c_int
_out = ctypes.POINTER(ctypes.c_void_p)
_spec = ctypes.POINTER(_Spec)
_FUNCTIONS = {
    "arena_abi": [], "arena_last_message": [_p, ctypes.c_size_t], "arena_free": [_p],
    "arena_status": [ctypes.POINTER(_Status)], "arena_open": [_s, _out], "arena_enter": [_p],
    "arena_leave": [], "arena_current": [_out],
    "arena_get_or_alloc": [_p, _s, _spec, _int, _out, _p],
    "arena_put": [_p, _s, _spec, _p, _int, _out, _p], "arena_bind": [_p, _s, _spec, _p],
    "arena_unbind": [_p, _s], "arena_object": [_p, _s, _s, _FACTORY, _p, _out],
    "arena_tag_push": [_s, _int], "arena_tag_pop": [],
    "arena_reload_begin": [ctypes.POINTER(_Scope), ctypes.POINTER(_u64)],
    "arena_receive": [_s, _u64, _u64], "arena_layer_commit": [_p, _p],
    "arena_reload_end": [_u64, _out], "arena_reload_abort": [_u64, _s, _out],
    "arena_snapshot": [_out], "arena_verify": [_p, _out], "arena_snapshot_free": [_p],
    "arena_cache_register": [_s, _FLUSH, _p], "arena_cache_flushed": [_s],
    "arena_manifest_load": [_s],
}


def _find():
    lib = ctypes.CDLL(None)
    try:
        for name, arguments in _FUNCTIONS.items():
            function = getattr(lib, name)
            function.argtypes, function.restype = arguments, ctypes.c_int
    except AttributeError:
        return None
    return lib if lib.arena_abi() >= 1 else None


_lib = _find()
_required = False
_warned = False


def abi():
    """Version of the library's interface; 0: not loaded."""
    return _lib.arena_abi() if _lib else 0


def available():
    """Is the library loaded and at work in this process?"""
    return bool(_lib) and _lib.arena_status(_sized(_Status)) != _ABSENT


def require():
    """From here on it is an error if the library is absent, and not a warning."""
    global _required
    _required = True
    if not available():
        _absent()


def _sized(kind):
    struct = kind()
    struct.struct_bytes = ctypes.sizeof(kind)
    return struct


def _message():
    text = ctypes.create_string_buffer(512)
    _lib.arena_last_message(text, len(text))
    return text.value.decode(errors="replace")


def _absent():
    global _warned
    if _required:
        raise Error(_ABSENT, "libarena_shim.so is not loaded, or turned off: preload it with "
                             "LD_PRELOAD, and set ARENA_GATE to warn or strict")
    if not _warned:
        _warned = True
        warnings.warn("libarena_shim.so is not loaded, or turned off: arenas and reloads do "
                      "nothing in this process", RuntimeWarning, stacklevel=4)


def _call(name, *arguments):
    """@return is the library there? Raises on errors."""
    code = getattr(_lib, name)(*arguments) if _lib else _ABSENT
    if code == _ABSENT:
        _absent()
    elif code:
        raise Error(code, _message())
    return code == 0


def _call_json(name, *arguments):
    """The call's last argument is a JSON string. @return (code, dict or None)."""
    text = ctypes.c_void_p()
    code = getattr(_lib, name)(*arguments, ctypes.byref(text)) if _lib else _ABSENT
    report = None
    if text.value:
        report = json.loads(ctypes.string_at(text.value))
        _lib.arena_free(text)
    if code == _ABSENT:
        _absent()
    return code, report


def status():
    """Where the process stands, as a dict; None: the library is absent."""
    s = _sized(_Status)
    if not _call("arena_status", ctypes.byref(s)):
        return None
    values = {name: getattr(s, name) for name, _ in _Status._fields_[1:]}
    return dict(values, verdict=Verdict(s.verdict), unsafe=bool(s.unsafe),
                reload_open=bool(s.reload_open))


# ---- memory of others ----

# Types that NumPy has; the others keep PyTorch's name.
_TYPESTR = {"bool": "|b1", "uint8": "|u1", "int8": "|i1", "int16": "<i2", "uint16": "<u2",
            "int32": "<i4", "uint32": "<u4", "int64": "<i8", "uint64": "<u8", "float16": "<f2",
            "float32": "<f4", "float64": "<f8", "complex64": "<c8", "complex128": "<c16"}
_TORCH = {typestr: name for name, typestr in _TYPESTR.items()}
_ITEM_BYTES = {"bfloat16": 2}       # else one byte: float8_*, float4_*


def dtype_name(dtype):
    """"<f4", "float32", torch.float32, numpy.float32: as specs have it."""
    if isinstance(dtype, str):
        name = dtype
    elif getattr(dtype, "kind", "V") != "V":
        name = dtype.str
    else:
        name = getattr(dtype, "name", None) or getattr(dtype, "__name__", None) or str(dtype)
    name = name.rpartition(".")[2]
    # float4_e2m1fn_x2 is one byte more than a spec has room for.
    return _TYPESTR.get(name, name.replace("_x2", "x2"))


def item_bytes(dtype):
    return int(dtype[2:]) if dtype[:1] in "<>|=" else _ITEM_BYTES.get(dtype, 1)


def _row_major(shape):
    strides, step = [], 1
    for n in reversed(shape):
        strides.insert(0, step)
        step *= max(n, 1)
    return tuple(strides)


class _Memory:
    """Where an array lies. strides in elements. keep: what must live as long."""

    def __init__(self, pointer, shape, strides, dtype, device, keep):
        self.pointer, self.shape, self.strides = pointer, tuple(shape), tuple(strides)
        self.dtype, self.device, self.keep = dtype, device, keep
        last = sum((n - 1) * step for n, step in zip(self.shape, self.strides))
        self.bytes = 0 if 0 in self.shape else (last + 1) * item_bytes(dtype)

    @property
    def dense(self):
        rows = _row_major(self.shape)
        return all(n <= 1 or a == b for n, a, b in zip(self.shape, self.strides, rows))


def _of_interface(o, interface, device):
    dtype = interface["typestr"]
    size = item_bytes(dtype)
    shape = tuple(interface["shape"])
    strides = interface.get("strides")
    strides = tuple(n // size for n in strides) if strides else _row_major(shape)
    return _Memory(interface["data"][0], shape, strides, dtype, device, o)


def _of_buffer(o):
    data = bytes(memoryview(o))
    pointer = ctypes.cast(ctypes.c_char_p(data), ctypes.c_void_p).value
    return _Memory(pointer, (len(data),), (1,), "|u1", None, data)


def _memory(o):
    """@return the _Memory of a Slot, tensor, array or buffer. device None: of the host."""
    if isinstance(o, Slot):
        return _Memory(o.pointer, o.shape, o.strides, o.dtype, o.device, o)
    if hasattr(o, "data_ptr"):
        device = (o.device.index or 0) if o.device.type == "cuda" else None
        return _Memory(o.data_ptr(), o.shape, o.stride(), dtype_name(o.dtype), device, o)
    if hasattr(o, "__cuda_array_interface__"):
        device = getattr(getattr(o, "device", None), "id", 0)
        return _of_interface(o, o.__cuda_array_interface__, device)
    if hasattr(o, "__array_interface__"):
        return _of_interface(o, o.__array_interface__, None)
    return _of_buffer(o)


def _current_stream(device):
    torch, cupy = sys.modules.get("torch"), sys.modules.get("cupy")
    if torch and torch.cuda.is_initialized():
        return torch.cuda.current_stream(device).cuda_stream
    return cupy.cuda.get_current_stream().ptr if cupy else 0


def _make_spec(shape, strides, dtype, device, layout, size=None):
    spec = _sized(_Spec)
    if len(shape) > MAX_DIMS:
        raise Error(_INVALID, f"shape {tuple(shape)}: at most {MAX_DIMS} dimensions")
    count = 1
    for i, n in enumerate(shape):
        spec.shape[i], spec.strides[i] = n, strides[i]
        count *= n
    spec.ndim, spec.device = len(shape), device
    spec.bytes = count * item_bytes(dtype) if size is None else size
    try:
        spec.dtype, spec.layout = dtype.encode(), layout.encode()
    except ValueError:
        text = f"dtype '{dtype}', layout '{layout}': at most 15 and 31 bytes"
        raise Error(_INVALID, text) from None
    return spec


# ---- slots ----

class Slot:
    """A view of a slot's memory, which stays where it is for the life of the process."""

    def __init__(self, layer_, name, pointer, spec, stream):
        self.layer, self.name, self.pointer, self._stream = layer_, name, pointer, stream
        self.shape, self.strides = tuple(spec.shape[:spec.ndim]), tuple(spec.strides[:spec.ndim])
        self.dtype, self.device = spec.dtype.decode(), spec.device
        self.layout, self.nbytes = spec.layout.decode(), spec.bytes

    def __repr__(self):
        return (f"<slot {self.layer.path}/{self.name} at {self.pointer:#x}: {self.dtype} "
                f"{list(self.shape)} on device {self.device}>")

    def _interface(self, shape, strides, typestr):
        size = item_bytes(typestr)
        dense = strides == _row_major(shape)
        # Who takes it orders its work behind this stream; 0 is forbidden, 1 is the legacy stream.
        return {"shape": shape, "typestr": typestr, "data": (self.pointer, False), "version": 3,
                "strides": None if dense else tuple(n * size for n in strides),
                "stream": self._stream or 1}

    @property
    def __cuda_array_interface__(self):
        if self.dtype[:1] not in ("<", ">", "|", "="):
            raise AttributeError(f"{self!r}: no array interface has {self.dtype}; use torch(), or "
                                 "raw")
        return self._interface(self.shape, self.strides, self.dtype)

    @property
    def raw(self):
        """The bytes of the slot, whatever their type, with an array interface."""
        return _Raw(self)

    def torch(self):
        """A tensor over the slot's memory."""
        import torch
        dtype = getattr(torch, _TORCH.get(self.dtype, self.dtype.replace("fnx2", "fn_x2")))
        flat = torch.as_tensor(self.raw, device=f"cuda:{self.device}").view(dtype)
        return torch.as_strided(flat, self.shape, self.strides)


class _Raw:
    def __init__(self, slot):
        self.slot = slot

    @property
    def __cuda_array_interface__(self):
        return self.slot._interface((self.slot.nbytes,), (1,), "|u1")


# Sources of copies that are queued, and objects of slots, live until nobody reads them.
_lock = threading.Lock()
_queued = []                        # (stream, source)
_objects = {}                       # handle -> object
_callbacks = []                     # of caches
_paths = {}                         # handle -> path


def _hold(memory, stream):
    """The source of a copy stays until the copy is done."""
    source = memory.keep
    if memory.device is not None and hasattr(source, "record_stream"):
        torch = sys.modules["torch"]
        source.record_stream(torch.cuda.ExternalStream(stream, memory.device) if stream
                             else torch.cuda.default_stream(memory.device))
        return
    with _lock:
        _queued.append((stream, source))
        open_reload = _reloads > 0
    if not open_reload:
        _release()


def _release():
    with _lock:
        done = _queued[:]
        del _queued[:]
    for stream in {stream for stream, _ in done}:
        _lib.cuStreamSynchronize(ctypes.c_void_p(stream))


class Layer:
    """An arena: the storage owner of one layer. 'with layer(path)' makes it the current one."""

    def __init__(self, path, _handle=None):
        handle = ctypes.c_void_p(_handle)
        if _handle is None and _call("arena_open", path.encode(), handle):
            _paths.setdefault(handle.value, path)
        self.path, self._handle = path, handle.value

    def __repr__(self):
        return f"<arena {self.path}>"

    def put(self, name, source, *, direct=False, layout="", stream=None):
        """Give a value slot its new value. @return a Slot of the LIVE memory, whose value stays old
        until commit() (direct=True: at once; so outside of a reload)."""
        if not _lib:
            _absent()
            return source
        memory = _memory(source)
        if not memory.dense:
            memory = _memory(source.contiguous() if hasattr(source, "contiguous") else
                             source.copy())
        device = _current_device() if memory.device is None else memory.device
        stream = _current_stream(device) if stream is None else stream
        spec = _make_spec(memory.shape, _row_major(memory.shape), memory.dtype, device, layout)
        live = ctypes.c_void_p()
        if not _call("arena_put", self._handle, name.encode(), spec, memory.pointer,
                     _DIRECT if direct else _STAGED, live, stream):
            return source
        _hold(memory, stream)
        return Slot(self, name, live.value, spec, stream)

    def get_or_alloc(self, name, shape, dtype, *, device=None, init=Init.EMPTY, layout="",
                     stream=None):
        """The memory of a scratch slot, the same at every call. @return a Slot."""
        dtype = dtype_name(dtype)
        shape = (shape,) if isinstance(shape, int) else tuple(shape)
        device = _current_device() if device is None else device
        stream = _current_stream(device) if stream is None and _lib else stream or 0
        spec = _make_spec(shape, _row_major(shape), dtype, device, layout)
        pointer = ctypes.c_void_p()
        if not _call("arena_get_or_alloc", self._handle, name.encode(), spec, int(init), pointer,
                     stream):
            return _plain(shape, dtype, device, init)
        return Slot(self, name, pointer.value, spec, stream)

    def bind(self, name, array, *, scratch=False, layout=""):
        """Watch memory of somebody else. @return @array. The slot does not keep it alive: that it
        goes away is what is watched."""
        if not _lib:
            _absent()
            return array
        m = _memory(array)
        spec = _make_spec(m.shape, m.strides, m.dtype, m.device or 0, layout, m.bytes)
        spec.flags = _SPEC_SCRATCH if scratch else 0
        _call("arena_bind", self._handle, name.encode(), spec, m.pointer)
        return array

    def unbind(self, name):
        _call("arena_unbind", self._handle, name.encode())

    def object(self, name, factory, type_=None):
        """The object of a slot, made by @factory once, and kept alive. @type_ is its type's name,
        and must not change; it is told from the factory's name if it is not given."""
        made, failed = [], []

        def make(_, out):
            try:
                made.append(factory())
                out[0] = id(made[0])
                with _lock:                     # before other threads can be told the handle
                    _objects[out[0]] = made[0]
                return 0
            except BaseException as error:      # must not pass through C; raised again below
                failed.append(error)
                return 1

        handle = ctypes.c_void_p()
        type_ = type_ or getattr(factory, "__qualname__", "object")
        code = _lib.arena_object(self._handle, name.encode(), type_.encode(), _FACTORY(make), None,
                                 handle) if _lib else _ABSENT
        if failed:
            raise failed[0]
        if code == _ABSENT:
            _absent()
            return factory()
        if code:
            raise Error(code, _message())
        with _lock:
            return _objects.get(handle.value, handle.value)     # else it is a C program's

    def commit(self, stream=None):
        """Verify the layer and publish what was put. Raises Refused on findings."""
        try:
            _call("arena_layer_commit", self._handle,
                  _current_stream(None) if stream is None and _lib else stream or 0)
        except Error as error:
            if error.code == _REFUSED:
                raise Refused(error.code, str(error)) from None
            raise


def _current_device():
    torch = sys.modules.get("torch")
    return torch.cuda.current_device() if torch and torch.cuda.is_initialized() else 0


def _plain(shape, dtype, device, init):
    """What an engine without slots would do; None where nobody can."""
    torch = sys.modules.get("torch")
    if not torch or not torch.cuda.is_available():
        return None
    make = torch.zeros if init == Init.ZERO else torch.empty
    return make(shape, dtype=getattr(torch, _TORCH.get(dtype, dtype)), device=f"cuda:{device}")


# ---- layers and tags of the thread ----

@contextlib.contextmanager
def layer(path_or_layer, required=False):
    """Make a Layer the current one of this thread. Nests. A Layer may go to another thread."""
    if required:
        require()
    a = path_or_layer if isinstance(path_or_layer, Layer) else Layer(path_or_layer)
    entered = _call("arena_enter", a._handle)
    try:
        yield a
    finally:
        if entered:
            _call("arena_leave")


def current():
    """The current Layer of this thread, None outside. Keep it for what allocates later."""
    handle = ctypes.c_void_p()
    _call("arena_current", handle)
    return Layer(_paths.get(handle.value, ""), handle.value) if handle.value else None


@contextlib.contextmanager
def tag(name, value=False):
    """Serve device allocations of this thread, also of other people's code, from the slots name#0,
    name#1, ... of the current layer. value=True: their contents are published by commit()."""
    pushed = _call("arena_tag_push", name.encode(), _VALUE if value else _SCRATCH)
    try:
        yield
    finally:
        if pushed:
            _call("arena_tag_pop")


# ---- reloads ----

_reloads = 0                        # open ones of this client: 0 or 1


def _strings(values):
    return (ctypes.c_char_p * len(values))(*(v.encode() for v in values))


class Reload:
    """A reload that is open, or was. report: its line in the report file, as a dict."""

    def __init__(self, layers=None, sources=None, role=None):
        self.id, self.report, self._present = ctypes.c_uint64(), None, False
        self._scope = scope = _sized(_Scope)
        scope.layers_count, scope.sources_count = len(layers or ()), len(sources or ())
        scope.layers = _strings(list(layers or ()))
        scope.sources = _strings(list(sources or ()))
        scope.role = role.encode() if role else None
        for what, given in (("layers", layers), ("sources", sources)):
            if given is not None and not given:
                raise Error(_INVALID, f"{what} is empty: name some, or leave it out for all")

    def receive(self, key, part=0, bytes=0):
        receive(key, part, bytes)

    def __enter__(self):
        global _reloads
        self._present = _call("arena_reload_begin", self._scope, ctypes.byref(self.id))
        with _lock:
            _reloads += self._present
        return self

    def _abort(self, error):
        """The caller's own error is what he must see."""
        why = f"{type(error).__name__}: {error}"
        with contextlib.suppress(Error):
            _, self.report = _call_json("arena_reload_abort", self.id, why.encode())
        if hasattr(error, "add_note"):
            error.add_note(f"arena: reload {self.id.value} was aborted, the process is unsafe "
                           "until a full reload passes")

    def _end(self):
        code, self.report = _call_json("arena_reload_end", self.id)
        if code in (_REFUSED, _UNSAFE):
            raise Refused(code, _message(), self.report)
        if code not in (0, _ABSENT):
            raise Error(code, _message())

    def __exit__(self, kind, error, trace):
        global _reloads
        if not self._present:
            return
        try:
            if error is None:
                self._end()
            elif isinstance(error, Refused):    # a commit found something: nothing broke off
                with contextlib.suppress(Refused):
                    self._end()
            else:
                self._abort(error)
        finally:
            with _lock:
                _reloads -= 1
            _release()


def reload(layers=None, sources=None, role=None, required=False):
    """A context: everything that is put, received and committed in it is one reload. It ends with
    the context; an exception aborts it, but a commit that is Refused only ends it. Raises Refused
    under ARENA_GATE=strict."""
    if required:
        require()
    return Reload(layers, sources, role)


def receive(key, part=0, bytes=0):
    """Note that @bytes of part @part of a source have arrived, for the current layer."""
    _call("arena_receive", key.encode(), part, bytes)


class Snapshot:
    """The identity of every slot, as it was."""

    def __init__(self):
        handle = ctypes.c_void_p()
        if _call("arena_snapshot", handle):
            weakref.finalize(self, _lib.arena_snapshot_free, handle.value)
        self._handle = handle.value

    def verify(self):
        """@return what changed, a "verify" line as a dict; None: the library is absent. Its
        verdict says whether there is an error among it."""
        code, report = _call_json("arena_verify", self._handle)
        if code not in (0, _ABSENT, _REFUSED):
            raise Error(code, _message())
        return report


def cache(name, flush=None):
    """Announce a cache that a reload makes stale. @flush(generation) is called at the end of a
    reload; it fails by raising. None: cache_flushed() acknowledges it."""
    def call(_, generation):
        try:
            flush(generation)
            return 0
        except BaseException as error:  # said here: C has no exceptions
            warnings.warn(f"flush of cache {name}: {error!r}", RuntimeWarning, stacklevel=2)
            return 1

    callback = _FLUSH(call) if flush else _FLUSH()
    _callbacks.append(callback)         # for ever: one that is replaced may be running
    _call("arena_cache_register", name.encode(), callback, None)


def cache_flushed(name):
    _call("arena_cache_flushed", name.encode())


def manifest(path):
    """Read what must arrive from a JSON file (arena(3))."""
    _call("arena_manifest_load", str(path).encode())
