# SPDX-License-Identifier: Apache-2.0
"""Arenas, slots and reloads of libarena_shim.so for Python, in one file, with the standard library.

    watch = arena.watch(model)                          # every tensor of it, by its path
    with arena.reload(watch=watch):                     # in place; raises under ARENA_GATE=strict
        load_weights(model)
    arena.gate()                                        # all ranks, or GateError names the bad ones

An engine that lets the library own what its graphs read has more to say:

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
bind() give back what they got, get_or_alloc() allocates as if there were no slots,
get_or_create_object() calls the factory, watch() finds nothing; only gate() does not pass.
require(), or required=True, makes that an error instead.

A Slot is a view of device memory that stays where it is as long as its context lives. It has
__cuda_array_interface__ (version 3), which torch.as_tensor(), cupy.asarray() and
jax.numpy.asarray() take without a copy.

Calls may be made from any thread; the current layer and the tags are each thread's own. The stream
is the current one of PyTorch or CuPy if they are loaded, else the legacy default stream. The
caller's own exception always comes through: what fails here on the way out of a block is dropped.
"""

from __future__ import annotations

import collections
import contextlib
import ctypes
import datetime
import enum
import functools
import json
import operator
import os
import re
import socket
import sys
import threading
import time
import types
import warnings
import weakref
import zlib
from typing import (Any, Callable, Dict, Iterable, Iterator, List, NamedTuple, Optional, Sequence,
                    Tuple, Union)

__all__ = ["Bound", "Error", "GateError", "GateResult", "Init", "Layer", "RankVerdict", "Refused",
           "Reload", "Skipped", "Slot", "Snapshot", "Verdict", "Watch", "abi", "available",
           "cache", "cache_flushed", "current", "gate", "judge_ranks", "layer", "manifest",
           "receipt", "receive", "reload", "require", "status", "tag", "torch_allocator",
           "watch"]

MAX_DIMS = 8
NAME_MAX = 255                      # bytes, ARENA_NAME_MAX
_VALUE, _SCRATCH = 0, 1             # enum arena_kind
_STAGED, _DIRECT = 0, 1             # enum arena_publish
_SPEC_SCRATCH, _SPEC_ZERO = 1, 2    # enum arena_spec_flags
_ABSENT, _INVALID, _SPEC, _REFUSED, _UNSAFE = -1, -2, -5, -8, -9
_I32, _I64, _U64 = 2**31 - 1, 2**63 - 1, 2**64 - 1


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


class _DeriveArg(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("slot", ctypes.c_char_p), ("value", ctypes.c_uint64)]


class _Derivation(ctypes.Structure):
    _fields_ = [("struct_bytes", ctypes.c_uint32), ("mode", ctypes.c_uint32),
                ("name", ctypes.c_char_p), ("args", ctypes.POINTER(_DeriveArg)),
                ("args_count", ctypes.c_uint32), ("reserved", ctypes.c_uint32)]


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
    "arena_reload_doubt": [_s], "arena_reload_wrote": [_p, _u64], "arena_finish": [],
    "arena_reload_end": [_u64, _out], "arena_reload_abort": [_u64, _s, _out],
    "arena_snapshot": [_out], "arena_verify": [_p, _out], "arena_snapshot_free": [_p],
    "arena_cache_register": [_s, _FLUSH, _p], "arena_cache_flushed": [_s],
    "arena_manifest_load": [_s], "arena_derive": [_p, ctypes.POINTER(_Derivation)],
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
_lock = threading.Lock()            # guards what is module-wide below; never held over a call out
_required = False
_warned = False


def _finish():
    """The exit line of the report. Where there is none, or the library is absent, nothing."""
    if _lib:
        _lib.arena_finish()


def _finish_worker(*_):
    """This process ends by os._exit(), after what multiprocessing finalizes."""
    sys.modules["multiprocessing.util"].Finalize(None, _finish, exitpriority=-1000)


def _forked():
    """In the child of a fork: if it is to be a worker of multiprocessing, it is told so later."""
    util = sys.modules.get("multiprocessing.util")
    if util is not None:
        util.register_after_fork(_finish_worker, _finish_worker)


def _watch_exit():
    """Workers that were forked would have no exit line in their report: see to it, in those that
    this process forks, and in itself."""
    if not _lib:
        return
    os.register_at_fork(after_in_child=_forked)
    process = sys.modules.get("multiprocessing.process")
    if process is None or process.parent_process() is None:
        return
    method = getattr(type(process.current_process()), "_start_method", None) or \
        sys.modules["multiprocessing"].get_start_method(allow_none=True)
    if method in ("fork", "forkserver"):
        _finish_worker()


_watch_exit()


def abi() -> int:
    """Version of the library's interface; 0: not loaded."""
    return _lib.arena_abi() if _lib else 0


def available() -> bool:
    """Is the library loaded and at work in this process?"""
    return bool(_lib) and _lib.arena_status(_sized(_Status)) != _ABSENT


def require() -> None:
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
    with _lock:
        first, _warned = not _warned, True
    if first:
        warnings.warn("libarena_shim.so is not loaded, or turned off: arenas and reloads do "
                      "nothing in this process", RuntimeWarning, stacklevel=4)


def _utf8(text: str) -> bytes:
    """For C, where a NUL would end it."""
    if not isinstance(text, str):
        raise Error(_INVALID, f"a name is {_shown(text)}: pass a str")
    if "\0" in text:
        raise Error(_INVALID, f"{text!r} has a NUL character: leave it out")
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise Error(_INVALID, f"{text!r} has half of a surrogate pair, which UTF-8 has no form "
                              "for: leave it out") from None


def _shown(o):
    """An argument that is wrong, for a message; some objects have no repr()."""
    try:
        return f"{o!r:.80}"
    except Exception:
        return f"a {type(o).__name__}"


def _number(what, value, low, high):
    """An int for C, which would take the lowest bits of it."""
    try:
        n = operator.index(value)
    except TypeError:
        raise Error(_INVALID, f"{what} is {_shown(value)}: pass an int") from None
    if not low <= n <= high:
        raise Error(_INVALID, f"{what} is {n}: pass {low} to {high}")
    return n


def _shape(shape):
    """A shape as a tuple; a number is one dimension."""
    with contextlib.suppress(TypeError):
        shape = (operator.index(shape),)
    try:
        return tuple(_number("shape", n, 0, _I64) for n in shape)
    except TypeError:
        raise Error(_INVALID, f"shape is {_shown(shape)}: pass ints") from None


def _names(what, names):
    """Names as a tuple; a str is one, not its characters. None: all."""
    if names is None:
        return ()
    if isinstance(names, (str, bytes)):
        return (names,)
    try:
        names = tuple(names)
    except TypeError:
        raise Error(_INVALID, f"{what} is {_shown(names)}: pass a str, or a list of them") from None
    if not names:
        raise Error(_INVALID, f"{what} is empty: name some, or leave it out for all")
    return names


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


def status() -> Optional[Dict[str, Any]]:
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


def dtype_name(dtype: Any) -> str:
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


def item_bytes(dtype: str) -> int:
    """Bytes of an element; of less than a byte, of a pair as it is stored (float4_e2m1fn_x2)."""
    dtype = _TYPESTR.get(dtype, dtype)
    typestr = re.fullmatch(r"[<>|=]([a-zA-Z])([0-9]+)", dtype)
    if typestr:
        return int(typestr[2]) * (4 if typestr[1] == "U" else 1)
    name = re.fullmatch(r"(bfloat|bits|complex|float|int|qint|quint|uint)([1-9][0-9]*)"
                        r"((_|x|fn)\w*)?", dtype)
    if not name:
        known = ", ".join(sorted(_TYPESTR) + ["bfloat16", "float8_e4m3fn", "float8_e5m2"])
        raise Error(_INVALID, f"dtype '{dtype}' is not known: pass one of {known}, another of "
                              "PyTorch, or NumPy's form, as '<f4'")
    return (int(name[2]) + 7) // 8


def _row_major(shape):
    strides, step = [], 1
    for n in reversed(shape):
        strides.insert(0, step)
        step *= max(n, 1)
    return tuple(strides)


class _Memory:
    """Where an array lies. strides in elements. keep: what must live as long."""

    def __init__(self, pointer, shape, strides, dtype, device, keep, size=0):
        self.pointer, self.shape, self.strides = pointer, tuple(shape), tuple(strides)
        self.dtype, self.device, self.keep = dtype, device, keep
        self.resize(size or item_bytes(dtype))

    def resize(self, size):
        """Elements have @size bytes. bytes: the extent, from the first to behind the last one."""
        last = sum((n - 1) * step for n, step in zip(self.shape, self.strides))
        self.bytes = 0 if 0 in self.shape else (last + 1) * size
        if self.bytes and any(step < 0 < n - 1 for n, step in zip(self.shape, self.strides)):
            raise Error(_INVALID, f"strides are {self.strides}: pass an array whose strides are "
                                  "not negative")

    @property
    def dense(self):
        rows = _row_major(self.shape)
        return all(n <= 1 or a == b for n, a, b in zip(self.shape, self.strides, rows))


def _of_interface(o, interface, device):
    dtype = interface["typestr"]
    size = item_bytes(dtype)
    shape = _shape(interface["shape"])
    strides = interface.get("strides")
    strides = (tuple(_number("strides", n, ~_I64, _I64) // size for n in strides) if strides
               else _row_major(shape))
    pointer = _number("the address of an array", interface["data"][0], 0, _U64)
    return _Memory(pointer, shape, strides, dtype, device, o)


def _plain_torch():
    """A context in which tensor subclasses have no say (__torch_function__)."""
    c = getattr(sys.modules.get("torch"), "_C", None)
    off = getattr(c, "DisableTorchFunction", None) or getattr(c, "DisableTorchFunctionSubclass",
                                                              None)
    return off() if off else contextlib.nullcontext()


def _ask(t, name, default=None):
    """An attribute of a tensor, as PyTorch has it: what a subclass defines is not called."""
    tensor = getattr(sys.modules.get("torch"), "Tensor", None)
    if tensor is None or not issubclass(type(t), tensor):
        return getattr(t, name, default)
    return getattr(tensor, name).__get__(t) if hasattr(tensor, name) else default


def _of_tensor(t):
    with _plain_torch():
        where = _ask(t, "device")
        device = (where.index or 0) if where.type == "cuda" else None
        # Some types, quantised ones, have no name here.
        size = _ask(t, "element_size", int)()
        m = _Memory(_ask(t, "data_ptr")(), _ask(t, "shape"), _ask(t, "stride")(),
                    dtype_name(_ask(t, "dtype")), device, t, size)
    return m


def _version(t):
    """How often a tensor was written in place, by it or another view; None: that is not counted
    (inference_mode())."""
    with contextlib.suppress(Exception):
        return _ask(t, "_version")
    return None


def _storage(t):
    """Where the memory begins that a tensor may be a view of; None: it does not say."""
    with contextlib.suppress(Exception), _plain_torch():
        return _ask(t, "data_ptr")() - _ask(t, "storage_offset")() * _ask(t, "element_size")()
    return None


def _of_buffer(o):
    data = bytes(memoryview(o))
    pointer = ctypes.cast(ctypes.c_char_p(data), ctypes.c_void_p).value
    return _Memory(pointer, (len(data),), (1,), "|u1", None, data)


def _memory(o):
    """@return the _Memory of a Slot, tensor, array or buffer. device None: of the host."""
    if isinstance(o, Slot):
        return _Memory(o.pointer, o.shape, o.strides, o.dtype, o.device, o)
    if hasattr(o, "data_ptr"):
        return _of_tensor(o)
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
        # Of a dimension that is expanded there is one element in memory.
        spec.shape[i] = _number("shape", n, 0, _I64) if strides[i] or n == 0 else 1
        spec.strides[i] = _number("strides", strides[i], ~_I64, _I64)
        count *= n
    spec.ndim, spec.device = len(shape), _number("device", device, 0, _I32)
    size = count * item_bytes(dtype) if size is None else size
    spec.bytes = _number("the size in bytes", size, 0, _I64)
    try:
        spec.dtype, spec.layout = _utf8(dtype), _utf8(layout)
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

    def torch(self) -> Any:
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
        if _handle is None and _call("arena_open", _utf8(path), handle):
            _paths.setdefault(handle.value, path)
        self.path, self._handle = path, handle.value

    def __repr__(self):
        return f"<arena {self.path}>"

    def put(self, name: str, source: Any, *, direct: bool = False, layout: str = "",
            stream: Optional[int] = None) -> Any:
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
        if not _call("arena_put", self._handle, _utf8(name), spec, memory.pointer,
                     _DIRECT if direct else _STAGED, live, stream):
            return source
        _hold(memory, stream)
        return Slot(self, name, live.value, spec, stream)

    def get_or_alloc(self, name: str, shape: Union[int, Sequence[int]], dtype: Any, *,
                     device: Optional[int] = None, init: Init = Init.EMPTY, layout: str = "",
                     zero: bool = False, stream: Optional[int] = None) -> Any:
        """The memory of a scratch slot, the same at every call. zero: each commit of the layer
        zeroes it, as locks need it. @return a Slot."""
        dtype = dtype_name(dtype)
        shape = _shape(shape)
        device = _current_device() if device is None else device
        stream = _current_stream(device) if stream is None and _lib else stream or 0
        spec = _make_spec(shape, _row_major(shape), dtype, device, layout)
        spec.flags = _SPEC_ZERO if zero else 0
        pointer = ctypes.c_void_p()
        if not _call("arena_get_or_alloc", self._handle, _utf8(name), spec, int(init), pointer,
                     stream):
            return _plain(shape, dtype, device, init)
        return Slot(self, name, pointer.value, spec, stream)

    def bind(self, name: str, array: Any, *, scratch: bool = False, layout: str = "") -> Any:
        """Watch memory of somebody else. @return @array. The slot does not keep it alive: that it
        goes away is what is watched."""
        if not _lib:
            _absent()
            return array
        m = _memory(array)
        spec = _make_spec(m.shape, m.strides, m.dtype, m.device or 0, layout, m.bytes)
        spec.flags = _SPEC_SCRATCH if scratch else 0
        _call("arena_bind", self._handle, _utf8(name), spec, m.pointer)
        return array

    def derive(self, kernel: str, mode: str = "check", **arguments: Union[str, int]) -> None:
        """Say how slots of the layer follow from others (arena(3), DERIVATIONS): commit() checks
        it, or computes it (mode="compute"); mode="off" forgets it. A str is the name of a slot,
        what is not given is 0:

            a.derive("arena_sinks_f32", **{"in": "sinks", "out": "f32", "count": 64})"""
        modes = ("check", "compute", "off")
        if mode not in modes:
            raise Error(_INVALID, f"derive: mode is {mode!r}: pass one of {', '.join(modes)}")
        list_ = (_DeriveArg * len(arguments))()
        for arg, (name, value) in zip(list_, arguments.items()):
            arg.name = _utf8(name)
            arg.slot = _utf8(value) if isinstance(value, str) else None
            arg.value = 0 if isinstance(value, str) else _number(name, value, 0, _U64)
        _call("arena_derive", self._handle,
              _Derivation(ctypes.sizeof(_Derivation), modes.index(mode), _utf8(kernel), list_,
                          len(list_), 0))

    def unbind(self, name: str) -> None:
        _call("arena_unbind", self._handle, _utf8(name))

    def get_or_create_object(self, name: str, factory: Callable[[], Any],
                             type_: Optional[str] = None) -> Any:
        """The object of a slot, made by @factory once, and kept alive. @type_ is its type's name,
        and must not change; it is told from the factory's name if it is not given. What the factory
        raises comes through."""
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
        type_ = getattr(factory, "__qualname__", "object") if type_ is None else type_
        code = _lib.arena_object(self._handle, _utf8(name), _utf8(type_), _FACTORY(make), None,
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

    def commit(self, stream: Optional[int] = None) -> None:
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
def _undone_by(call, done):
    """@call at the end of the block, if there is something to undo. The block's own exception is
    what the caller must see."""
    try:
        yield
    except BaseException:
        if done:
            with contextlib.suppress(Exception):
                _call(call)
        raise
    if done:
        _call(call)


@contextlib.contextmanager
def layer(path_or_layer: Union[str, Layer], required: bool = False) -> Iterator[Layer]:
    """Make a Layer the current one of this thread. Nests. A Layer may go to another thread."""
    if required:
        require()
    a = path_or_layer if isinstance(path_or_layer, Layer) else Layer(path_or_layer)
    entered = _call("arena_enter", a._handle)
    with _undone_by("arena_leave", entered):
        yield a


def current() -> Optional[Layer]:
    """The current Layer of this thread, None outside. Keep it for what allocates later."""
    handle = ctypes.c_void_p()
    _call("arena_current", handle)
    return Layer(_paths.get(handle.value, ""), handle.value) if handle.value else None


@contextlib.contextmanager
def tag(name: str, value: bool = False, required: bool = False) -> Iterator[None]:
    """Serve device allocations of this thread, also of other people's code, from the slots name#0,
    name#1, ... of the current layer. value=True: their contents are published by commit()."""
    if required:
        require()
    pushed = _call("arena_tag_push", _utf8(name), _VALUE if value else _SCRATCH)
    with _undone_by("arena_tag_pop", pushed):
        yield


def _library_path():
    at = ctypes.cast(_lib.arena_abi, ctypes.c_void_p).value
    with open("/proc/self/maps", encoding="utf-8") as maps:
        for line in maps:
            fields = line.rstrip("\n").split(None, 5)
            low, high = (int(edge, 16) for edge in fields[0].split("-"))
            if low <= at < high:
                return fields[5]
    return None


def torch_allocator(required: bool = False) -> Any:
    """A torch.cuda.memory.CUDAPluggableAllocator whose memory is that of the thread's tag; None
    without the library, as torch.cuda.MemPool() takes it. Keep the pool as long as its tensors:

        allocator = arena.torch_allocator()
        pool = torch.cuda.MemPool(allocator and allocator.allocator())
        with arena.layer(path), arena.tag("weights"), torch.cuda.use_mem_pool(pool):
            model = build()

    A slot is what the pool asks for, a segment of 2 MiB or more with many tensors in it."""
    if required:
        require()
    if not _lib:
        _absent()
        return None
    torch = sys.modules.get("torch")
    if torch is None:
        raise Error(_INVALID, "torch_allocator: PyTorch is not in this process: import torch first")
    return torch.cuda.memory.CUDAPluggableAllocator(_library_path(), "arena_torch_malloc",
                                                    "arena_torch_free")


# ---- reloads ----

_reloads = 0                        # open ones of this client: 0 or 1
_last_report = None                 # of the last one that was closed


def _strings(values):
    return (ctypes.c_char_p * len(values))(*(_utf8(v) for v in values))


class Reload:
    """A reload that is open, or was. report: its line in the report file, as a dict."""

    def __init__(self, layers: Union[str, Sequence[str], None] = None,
                 sources: Union[str, Sequence[str], None] = None, role: Optional[str] = None,
                 watches: Sequence[Watch] = ()):
        self.id, self.report, self._present = ctypes.c_uint64(), None, False
        self._watches = watches
        # Of each tensor at the begin: itself, and its version; and the versions of each storage.
        self._versions: List[Tuple[weakref.ref, int, int, int]] = []
        self._storages: Dict[Optional[int], set] = {}
        self._scope = scope = _sized(_Scope)
        layers, sources = _names("layers", layers), _names("sources", sources)
        scope.layers_count, scope.sources_count = len(layers), len(sources)
        scope.layers, scope.sources = _strings(layers), _strings(sources)
        scope.role = None if role is None else _utf8(role)

    def receive(self, key: str, part: int = 0, bytes: int = 0) -> None:
        receive(key, part, bytes)

    def __enter__(self) -> Reload:
        global _reloads
        self._note_versions()
        self._present = _call("arena_reload_begin", self._scope, ctypes.byref(self.id))
        with _lock:
            _reloads += self._present
        return self

    def _abort(self, error):
        """The caller's own error is what he must see."""
        try:
            why = f"{type(error).__name__}: {error}"
        except Exception:               # it does not say
            why = type(error).__name__
        why = why.replace("\0", "?").encode(errors="backslashreplace")
        _, self.report = _call_json("arena_reload_abort", self.id, why)
        if hasattr(error, "add_note"):
            error.add_note(f"arena: reload {self.id.value} was aborted, the process is unsafe "
                           "until a full reload passes")

    def _end(self):
        code, self.report = _call_json("arena_reload_end", self.id)
        if code in (_REFUSED, _UNSAFE):
            raise Refused(code, _message(), self.report)
        if code not in (0, _ABSENT):
            raise Error(code, _message())

    def _note_versions(self):
        self._versions, self._storages = [], collections.defaultdict(set)
        with _plain_torch():
            for w in self._watches or _living():
                for tensor, pointer, size, storage in w._tensors:
                    version = _version(tensor())
                    if version is not None:
                        self._versions.append((tensor, pointer, size, version))
                        self._storages[storage].add(version)

    def _tell_written(self):
        """The library sees copies; what kernels wrote, PyTorch knows: a fill_(), a copy_() that
        converts."""
        with _plain_torch():
            for tensor, pointer, size, before in self._versions:
                t = tensor()
                if _version(t) != before and t is not None and _ask(t, "data_ptr")() == pointer:
                    _call("arena_reload_wrote", pointer, size)
            for w in self._watches:
                for tensor, pointer, size, storage in w._tensors:
                    # Of one that is new it is not known whether it counts from 0, or goes on.
                    version, before = _version(tensor()), self._storages.get(storage)
                    if version and before and version not in before:
                        _call("arena_reload_wrote", pointer, size)

    def _finish(self):
        """The end of a body that came to its end: where is everything now?"""
        # Who names none means all. A tensor that the look before did not reach may have moved as
        # well.
        watches = self._watches or _living()
        gaps = [w.gap for w in watches]
        try:
            for w in self._watches:
                w.rebind()
            self._tell_written()
        except BaseException as error:
            with contextlib.suppress(Exception):
                self._abort(error)
            raise
        gaps = [g for g in dict.fromkeys(gaps + [w.gap for w in watches]) if g]
        if gaps:
            # Nothing was found, perhaps, but not everything was looked at.
            _call("arena_reload_doubt", "; ".join(gaps).encode(errors="backslashreplace"))
        self._end()
        if gaps and self.report and self.report["verdict"] == "unproven":
            text = f"reload {self.id.value} is unproven: {self.report['why']}"
            if _required:
                raise Refused(_REFUSED, text, self.report)
            warnings.warn(text, RuntimeWarning, stacklevel=3)

    def __exit__(self, kind, error, trace):
        global _reloads, _last_report
        if not self._present:
            return
        try:
            if error is None:
                self._finish()
            elif isinstance(error, Refused):
                # A commit that found something: nothing broke off.
                with contextlib.suppress(Exception):
                    self._finish()
                error.report = error.report or self.report
            else:
                with contextlib.suppress(Exception):
                    self._abort(error)
        finally:
            with _lock:
                _reloads -= 1
                _last_report = self.report
            _release()


def reload(layers: Union[str, Sequence[str], None] = None,
           sources: Union[str, Sequence[str], None] = None, role: Optional[str] = None,
           required: bool = False, watch: Union[Watch, Sequence[Watch], None] = None) -> Reload:
    """A context: everything that is put, received and committed in it is one reload, of @layers or
    @sources if they are named (a str is one name), else of everything. It ends with the context; an
    exception aborts it, but a commit that is Refused only ends it, and its exception gets the report
    of all findings. Raises Refused under ARENA_GATE=strict. What is given as @watch is looked through again at the end of the body, so
    that the verdict covers where its tensors are by then. If a Watch has a gap, the reload is
    unproven; and a tensor in memory of a capture that a kernel writes is a warning: of @watch, or
    if none is given, of any whose model lives."""
    if required:
        require()
    watches = [watch] if isinstance(watch, Watch) else () if watch is None else watch
    if not isinstance(watches, (list, tuple)) or not all(isinstance(w, Watch) for w in watches):
        raise Error(_INVALID, f"watch is {_shown(watch)}: pass what arena.watch() returned")
    return Reload(layers, sources, role, watches)


def receive(key: str, part: int = 0, bytes: int = 0) -> None:
    """Note that @bytes of part @part of a source have arrived, for the current layer."""
    _call("arena_receive", _utf8(key), _number("part", part, 0, _U64),
          _number("bytes", bytes, 0, _U64))


class Snapshot:
    """The identity of every slot, as it was."""

    def __init__(self):
        handle = ctypes.c_void_p()
        if _call("arena_snapshot", handle):
            weakref.finalize(self, _lib.arena_snapshot_free, handle.value)
        self._handle = handle.value

    def verify(self) -> Optional[Dict[str, Any]]:
        """@return what changed, a "verify" line as a dict; None: the library is absent. Its
        verdict says whether there is an error among it."""
        code, report = _call_json("arena_verify", self._handle)
        if code not in (0, _ABSENT, _REFUSED):
            raise Error(code, _message())
        return report


# ---- looking through a model ----

class Bound(NamedTuple):
    """What a slot of a watched model is bound to. aliases: other paths of the same tensor."""
    layer: str
    slot: str
    pointer: int
    bytes: int
    dtype: str
    shape: Tuple[int, ...]
    strides: Tuple[int, ...]
    device: int
    aliases: Tuple[str, ...]


class Skipped(NamedTuple):
    """What was not bound, or not entered, and why."""
    path: str
    type: str
    reason: str


_Name = Tuple[str, str]             # layer path, slot name

# Nothing hangs on these. Classes by their ids: a metaclass may have an __eq__ and no __hash__.
_ATOMS = frozenset(map(id, (
    str, bytes, bytearray, memoryview, int, float, complex, bool, range, type(None), type(...),
    type(NotImplemented), types.ModuleType, types.CodeType, types.FrameType, types.TracebackType,
    types.BuiltinFunctionType, types.GetSetDescriptorType, types.MemberDescriptorType,
    type(threading.Lock()), type(threading.RLock()))))
_KEYS = frozenset(map(id, (str, int, bool, float, type(None))))
_ATOM_BASES = (type, enum.Enum, weakref.ref, property, classmethod, staticmethod)
_ATOM_MODULES = frozenset({"datetime", "decimal", "re", "uuid"})
_ATOM_NAMES = frozenset({"torch.device", "torch.dtype", "torch.layout", "torch.memory_format",
                         "torch.Generator", "torch._C.Generator"})
_SPARSE_PARTS = {
    "torch.sparse_coo": ("_indices", "_values"),
    "torch.sparse_csr": ("crow_indices", "col_indices", "values"),
    "torch.sparse_bsr": ("crow_indices", "col_indices", "values"),
    "torch.sparse_csc": ("ccol_indices", "row_indices", "values"),
    "torch.sparse_bsc": ("ccol_indices", "row_indices", "values"),
}

# What classes say of themselves; a metaclass has no say in it.
_mro_of = type.__dict__["__mro__"].__get__
_names_of_class = type.__dict__["__dict__"].__get__


def _type_name(kind):
    module = _names_of_class(kind).get("__module__")
    name = type.__dict__["__qualname__"].__get__(kind)
    return f"{module}.{name}" if isinstance(module, str) and module != "builtins" else name


def _static(kind, name):
    """An attribute of a class, as it lies there."""
    for k in _mro_of(kind):
        if name in _names_of_class(k):
            return _names_of_class(k)[name]
    return None


def _elements(iterate):
    """What a container holds, while other threads may change it."""
    for _ in range(100):
        with contextlib.suppress(RuntimeError):
            return list(iterate())
    return list(iterate())


def _key_text(key, number):
    """A key of a dict, by which it is found again; no code of the program is asked."""
    plain = [id(type(k)) for k in (key if type(key) is tuple else (key,))]
    if all(k in _KEYS for k in plain):
        with contextlib.suppress(ValueError):           # an int of too many digits
            return f"[{key!r}]"
    return f"[<{type.__dict__['__name__'].__get__(type(key))} #{number}>]"


def _attribute(key):
    """The name of an attribute; a subclass of str is not asked."""
    return str.__str__(key) if issubclass(type(key), str) else _key_text(key, 0)[1:-1]


def _fit(name):
    """A name that the library takes. Long ones keep their head and a checksum of the whole."""
    raw = name.replace("\0", "\\x00").encode(errors="backslashreplace")
    if len(raw) > NAME_MAX:
        raw = raw[:NAME_MAX - 9].decode(errors="ignore").encode() + b"~%08x" % zlib.crc32(raw)
    return raw.decode()


def _full(name):
    layer_, slot = name
    return f"{layer_}.{slot}" if slot[:1] != "[" else layer_ + slot


def _wrapper_class(torch, kind):
    """The class that makes @kind a tensor without memory of its own, None: it has some."""
    plain = _static(torch.Tensor, "__torch_dispatch__")
    for k in _mro_of(kind):
        if k is torch.Tensor:
            return None
        if _names_of_class(k).get("__torch_dispatch__", plain) is not plain:
            return k
    return None


class _Limits(NamedTuple):
    depth: int = 24
    objects: int = 500_000
    seconds: float = 30.0


class _Cut(Exception):
    """A limit ends the walk: its setting, and what is over."""


class _Walk:
    """One look through everything that hangs on a model, breadth first, so that a tensor gets the
    shortest of its names.

    Read are: the dicts of instances, slots of classes, what containers of the interpreter hold,
    cells, defaults and attributes of functions, methods, partials. Not called is anything that a
    class of the program defines: no property, no __getattr__, no __iter__, no __repr__.
    """

    def __init__(self, limits: _Limits, devices: Sequence[str], known: Dict[_Name, Bound]):
        self.limits, self.devices = limits, devices
        self.tensor_type = getattr(sys.modules.get("torch"), "Tensor", ())
        self.names: Dict[tuple, List[_Name]] = {}       # of each piece of memory
        self.memory: Dict[tuple, tuple] = {}
        self.tensors: Dict[int, tuple] = {}             # by their ids; of Watch._tensors
        self.skipped: List[Skipped] = []
        self.opaque: Dict[int, Tuple[type, List[str]]] = {}    # by the id of the class
        self.complete, self.cut = True, ""
        # Elements of sets, as they were bound at the last look.
        self._elements = {(b.layer, b.pointer, b.shape, b.dtype): b.slot for b in known.values()
                          if b.slot.endswith("}")}
        self._taken: Dict[_Name, tuple] = {}            # whose name it is
        self._seen: Dict[int, Any] = {}                 # keeps ids from being used again
        self._kinds: Dict[int, tuple] = {}              # by the id of a class, which it keeps
        self._classes: Dict[int, Any] = {}              # looked at by _tell_class()
        self._queue: collections.deque = collections.deque()
        self._deadline, self._ticks = 0.0, 0

    def run(self, root: Any, path: str) -> None:
        self._deadline = time.monotonic() + self.limits.seconds
        at, count = (path, ""), 0
        try:
            self._add_root(root, path)
            while self._queue:
                at, count = self._queue[0][1:3], count + 1
                if count > self.limits.objects:
                    raise _Cut(f"max_objects={self.limits.objects}", "objects were looked at")
                self._visit(*self._queue.popleft())
        except _Cut as cut:
            self.complete, self.cut = False, cut.args[0]
            self._skip(at, type(root), f"{len(self._queue)} more objects, at least: "
                       f"{cut.args[0].partition('=')[2]} {cut.args[1]}")
        for kind, where in self.opaque.values():
            self.skipped.append(Skipped(where[0], _type_name(kind), "nothing of it can be seen "
                                        f"from outside ({len(where)} such objects)"))
        self._seen.clear()

    def _tick(self):
        """Also inside of one large container."""
        self._ticks += 1
        if self._ticks % 256 == 0 and time.monotonic() > self._deadline:
            raise _Cut(f"max_seconds={self.limits.seconds}", "seconds are over")

    # ---- what there is ----

    def _skip(self, name, kind, reason):
        self.skipped.append(Skipped(_full(name), _type_name(kind), reason))

    def _once(self, o):
        """Is it met for the first time?"""
        if id(o) in self._seen:
            return False
        self._seen[id(o)] = o
        return True

    def _readers(self, kind):
        """How to read an instance of a class: the descriptor of its dict, those of its slots, and
        is it a tensor or an array?"""
        if id(kind) not in self._kinds:
            slots = {}
            for k in _mro_of(kind):
                for name, d in _names_of_class(k).items():
                    if type(d) is types.MemberDescriptorType:
                        slots.setdefault(name, d)
            state = _static(kind, "__dict__")
            state = state if type(state) is types.GetSetDescriptorType else None
            array = _static(kind, "__cuda_array_interface__")
            self._kinds[id(kind)] = (state, list(slots.items()), self._is_tensor(kind)
                                     or type(array) is types.GetSetDescriptorType, kind)
            self._tell_class(kind)
        return self._kinds[id(kind)]

    def _tell_class(self, kind):
        """Tensors that lie in a class are not the model's alone: they are told."""
        for k in _mro_of(kind):
            if id(k) in self._classes:
                continue
            self._classes[id(k)] = k
            for name, value in list(_names_of_class(k).items()):
                if id(type(value)) not in _ATOMS and not issubclass(type(value), _ATOM_BASES) \
                        and self._is_memory(value, type(value)):
                    self.skipped.append(Skipped(
                        f"{_type_name(k)}.{_attribute(name)}", _type_name(type(value)), "an "
                        "attribute of a class: bind() it, or make it one of the instance"))

    def _state(self, o):
        """The dict of an instance."""
        state = self._readers(type(o))[0]
        values = state.__get__(o) if state else None
        return values if type(values) is dict else {}

    def _is_module(self, o):
        state = self._state(o)
        return all(issubclass(type(state.get(name)), dict)
                   for name in ("_parameters", "_buffers", "_modules"))

    # ---- modules ----

    def _add_root(self, root, path):
        if self._is_module(root):
            self._add_modules(root, path, path or type(root).__name__, 0)
        else:
            self._push(root, path or type(root).__name__, "", 0)

    def _add_modules(self, root, prefix, layer_, depth):
        """A tree of modules: first all parameters and buffers, whose names count most, then what
        else hangs on them is queued."""
        modules, waiting = [], [(root, prefix, layer_)]
        while waiting:
            m, path, name = waiting.pop()
            if not self._once(m):
                continue
            modules.append((m, name))
            children = [(child, self._dotted(path, k))
                        for k, child in list(dict.items(self._state(m)["_modules"]))]
            for child, at in reversed(children):
                if child is not None and self._is_module(child):
                    waiting.append((child, at, at))
                elif child is not None:
                    self._push(child, at, "", depth + 1)
        for what in ("_parameters", "_buffers"):
            for m, name in modules:
                for k, t in list(dict.items(self._state(m)[what])):
                    self._push(t, name, _attribute(k), depth)
        for m, name in modules:
            for k, value in list(self._state(m).items()):
                if _attribute(k) not in ("_parameters", "_buffers", "_modules"):
                    self._push(value, name, _attribute(k), depth)
            self._push_slots(m, name, "", depth)

    # ---- objects ----

    def _push(self, o, layer_, name, depth):
        self._tick()
        kind = type(o)
        if id(kind) in _ATOMS or issubclass(kind, _ATOM_BASES):
            return
        if self._is_memory(o, kind):
            self._add_memory(o, kind, layer_, name)
        if not self._once(o):
            return
        if depth > self.limits.depth:
            self._skip((layer_, name), kind, f"more than {self.limits.depth} levels deep")
            return
        self._queue.append((o, layer_, name, depth))

    def _visit(self, o, layer_, name, depth):
        kind = type(o)
        if self._is_module(o):
            del self._seen[id(o)]
            at = _full((layer_, name)) if name else layer_
            self._add_modules(o, at, at, depth + 1)
            return
        content = self._content(o, kind, layer_, name)
        for suffix, value in content or ():
            self._push(value, layer_, name + suffix, depth + 1)
        if kind is not types.FunctionType:
            self._push_slots(o, layer_, name, depth + 1)
        state, slots = self._readers(kind)[:2]
        for k, value in list(self._state(o).items()):
            self._push(value, layer_, self._dotted(name, k), depth + 1)
        if content is None and not state and not slots and not self._harmless(kind):
            self.opaque.setdefault(id(kind), (kind, []))[1].append(_full((layer_, name)))

    @staticmethod
    def _dotted(name, attribute):
        return f"{name}.{_attribute(attribute)}" if name else _attribute(attribute)

    def _push_slots(self, o, layer_, name, depth):
        for k, d in self._readers(type(o))[1]:
            try:
                value = d.__get__(o)
            except (AttributeError, TypeError):         # not set
                continue
            self._push(value, layer_, self._dotted(name, k), depth)

    def _harmless(self, kind):
        module = str(_names_of_class(kind).get("__module__"))
        return (self._is_tensor(kind) or module.partition(".")[0] == "numpy"
                or module in _ATOM_MODULES or _type_name(kind) in _ATOM_NAMES)

    def _content(self, o, kind, layer_, name):
        """[(suffix of the name, what is there)] of a container or a function; None: it is
        neither. Methods of the base class: a subclass may have others."""
        if issubclass(kind, dict):
            return ((_key_text(k, i), v) for i, (k, v) in enumerate(list(dict.items(o))))
        for base in (list, tuple, collections.deque):
            if issubclass(kind, base):
                return ((f"[{i}]", v) for i, v in enumerate(_elements(lambda: base.__iter__(o))))
        for base in (set, frozenset):
            if issubclass(kind, base):
                return self._set_content(_elements(lambda: base.__iter__(o)), layer_, name)
        if kind is types.FunctionType:
            return self._function_content(o)
        if kind is types.CellType:
            try:
                return [("", o.cell_contents)]
            except ValueError:                          # empty
                return []
        return None

    @staticmethod
    def _function_content(f):
        content = []
        for i, cell in enumerate(f.__closure__ or ()):
            with contextlib.suppress(ValueError):       # empty
                content.append((f".__closure__[{i}]", cell.cell_contents))
        content += [(f".__defaults__[{i}]", v) for i, v in enumerate(f.__defaults__ or ())]
        content += [(f".__kwdefaults__[{k!r}]", v) for k, v in (f.__kwdefaults__ or {}).items()]
        return content

    def _set_content(self, elements, layer_, name):
        """A set has no order that lasts: what stayed where it was keeps its name."""
        kept, rest = [], []
        for o in elements:
            self._tick()
            m = self._memory_of(o, type(o)) if self._is_memory(o, type(o)) else ""
            slot = "" if isinstance(m, str) else self._elements.get(
                (_fit(layer_), m.pointer, m.shape, m.dtype), "")
            if slot.startswith(name + "{"):
                kept.append((slot[len(name):], o))
            else:
                rest.append(o)
        taken = {suffix for suffix, _ in kept}
        free = (f"{{{i}}}" for i in range(2 * len(elements)) if f"{{{i}}}" not in taken)
        return kept + [(next(free), o) for o in rest]

    # ---- memory ----

    def _is_tensor(self, kind):
        return issubclass(kind, self.tensor_type)

    def _is_memory(self, o, kind):
        return self._readers(kind)[2] or "__cuda_array_interface__" in self._state(o)

    def _memory_of(self, o, kind):
        """@return the _Memory; a str: why there is none that could be read."""
        try:
            if not self._is_tensor(kind):
                interface = self._state(o).get("__cuda_array_interface__")
                if interface is None:
                    interface = _static(kind, "__cuda_array_interface__").__get__(o)
                return _of_interface(o, interface, 0)
            return _of_tensor(o)
        except Error as error:
            return f"its memory cannot be read: {error}"
        except Exception:               # of whoever made it
            return "its memory cannot be read"

    def _add_memory(self, o, kind, layer_, name):
        if self._is_tensor(kind):
            self._add_tensor(o, kind, layer_, name)
        elif any(d.startswith("cuda") for d in self.devices):
            self._add_piece(kind, self._memory_of(o, kind), (layer_, name))

    def _add_tensor(self, t, kind, layer_, name):
        wrapper = _wrapper_class(sys.modules["torch"], kind)
        if wrapper is not None:
            self._skip((layer_, name), kind, f"{_type_name(wrapper)} wraps other tensors "
                       "(__torch_dispatch__): those among its attributes are bound instead")
            return
        try:
            with _plain_torch():
                where, layout = _ask(t, "device"), str(_ask(t, "layout"))
                nested = bool(_ask(t, "is_nested", False))
                wanted = where.type in self.devices or str(where) in self.devices
                parts = [(p, _ask(t, p)()) for p in _SPARSE_PARTS.get(layout, ()) if wanted]
        except Exception as error:
            self._skip((layer_, name), kind, f"it does not say where it is: {error!r:.200}")
            return
        if not wanted:
            self._skip((layer_, name), kind, f"on {where}")
        elif nested or layout not in ("torch.strided", *_SPARSE_PARTS):
            self._skip((layer_, name), kind, "a nested tensor" if nested else f"of {layout}")
        else:
            for suffix, part in parts:
                self._add_piece(kind, self._memory_of(part, type(part)),
                                (layer_, f"{name}.{suffix}()"))
            if not parts:
                m = self._memory_of(t, kind)
                self._add_piece(kind, m, (layer_, name))
                if not isinstance(m, str) and m.pointer and m.bytes:
                    self.tensors[id(t)] = weakref.ref(t), m.pointer, m.bytes, _storage(t)

    def _add_piece(self, kind, m, name):
        if isinstance(m, str):
            self._skip(name, kind, m)
        elif not m.pointer or not m.bytes:
            self._skip(name, kind, "empty")
        else:
            key = m.pointer, m.shape, m.strides, m.dtype, m.device
            at = _fit(name[0]), _fit(name[1] or ".")
            while self._taken.setdefault(at, key) != key:       # "a.b" is a key, and an attribute
                at = at[0], _fit(at[1] + "~")
            names = self.names.setdefault(key, [])
            if at not in names:
                names.append(at)
            self.memory[key] = (*key, m.bytes)


# ---- watching a model ----

def _devices(devices):
    devices = _names("devices", devices) or ("cuda",)
    for d in devices:
        if not isinstance(d, str) or not re.fullmatch(r"(cuda|cpu)(:[0-9]+)?", d):
            raise Error(_INVALID, f"devices: {_shown(d)} is not known: pass 'cuda', 'cuda:N' for "
                                  "one of them, or 'cpu'")
    return devices


def _same_root(a, b):
    """One model? A list, tuple or dict is one by what it holds: it may be made for each call."""
    if a is b or type(a) is not type(b) or not any(type(a) is k for k in (list, tuple, dict)):
        return a is b
    values = [list(o.values()) if type(o) is dict else o for o in (a, b)]
    return len(a) == len(b) and all(x is y for x, y in zip(*values))


class Watch:
    """The tensors of a model as bound slots: layer = path of the module, slot = path from there.

    bound: {(layer, slot): Bound}; skipped: what was left out, and why; split: paths that were other
    names of a tensor, and are tensors of their own now; findings: of the last look, as the library
    judges them; complete: no limit cut the look short; gap: why a reload over it proves nothing."""

    def __init__(self, model: Any, path: str):
        self.path, self._devices, self._limits = path, ("cuda",), _Limits()
        self.bound: Dict[_Name, Bound] = {}
        self.skipped: List[Skipped] = []
        self.split: List[str] = []
        self.findings: List[Dict[str, Any]] = []
        self.complete, self._cut = True, ""
        self._layers: Dict[str, Layer] = {}
        self._known: Dict[_Name, Bound] = {}        # bound, or gone since
        # Of PyTorch's: itself, address, bytes, where its storage begins.
        self._tensors: List[Tuple[weakref.ref, int, int, Optional[int]]] = []
        self._before: Optional[Snapshot] = None     # how it was when nothing was wrong
        self._lock = threading.RLock()
        self._set_model(model)

    def __repr__(self) -> str:
        return (f"<watch of {self.path or 'a model'}: {len(self.bound)} tensors in "
                f"{len({b.layer for b in self.bound.values()})} layers, {len(self.skipped)} "
                f"skipped, {len(self.findings)} findings{'' if self.complete else ', incomplete'}>")

    def _set_model(self, model):
        try:
            self._model = weakref.ref(model)
        except TypeError:               # no weak references to such an object
            self._model = lambda: model

    def _look_like(self, devices, **limits):
        """How to look from now on; None: as before."""
        limits = {name: limit for name, limit in limits.items() if limit is not None}
        with self._lock:
            self._devices = self._devices if devices is None else devices
            self._limits = self._limits._replace(**limits)

    @property
    def model(self) -> Any:
        """None: it is gone."""
        return self._model()

    def rebind(self, model: Any = None) -> List[Dict[str, Any]]:
        """Look through the model again, or through its successor @model, bind each path to the
        memory it has now, and unbind those that are gone. @return the findings: what moved, is
        missing, or has another spec since nothing was wrong."""
        with self._lock:
            if model is not None:
                self._set_model(model)
            if available():
                walk = _Walk(self._limits, self._devices, self._known)
                if self.model is not None:
                    walk.run(self.model, self.path)
                self._take(walk)
                self._judge()
            else:
                _absent()
            return self.findings

    @property
    def gap(self) -> str:
        """Why a reload that is watched by it is unproven: the look was cut short, or found nothing;
        empty: it is not."""
        what = f"watch of {self.path or 'a model'}"
        if not self.complete:
            return f"{what} incomplete: limit of {self._cut} hit, raise it"
        if self.bound or not available():
            return ""
        why = "".join(f" ({len(self.skipped)} skipped, {s.path}: {s.reason})"
                      for s in self.skipped[:1])
        return (f"{what} bound nothing on {', '.join(self._devices)}{why}: watch a model when it "
                "is on the GPU")

    def _take(self, walk):
        aliases = {a for b in self._known.values() for a in b.aliases}
        bound, self.skipped = {}, walk.skipped
        self.complete, self._cut = walk.complete, walk.cut
        self._tensors = list(walk.tensors.values())
        self.split = []
        for key, names in walk.names.items():
            # The name that it always had, else the first one; the rest is told.
            first = [n for n in names if n in self._known] or names[:1]
            others = tuple(_full(n) for n in names if n not in first)
            self.split += [_full(n) for n in first if n not in self._known
                           and _full(n) in aliases]
            pointer, shape, strides, dtype, device, size = walk.memory[key]
            for name in first:
                bound[name] = Bound(*name, pointer, size, dtype, shape, strides, device or 0,
                                    others)
        for name, b in list(bound.items()):
            if not self._bind(name, b):
                del bound[name]
        for name, b in self.bound.items():
            if name not in bound and walk.complete:
                self._layers[b.layer].unbind(b.slot)
            elif name not in bound:
                bound[name] = b
        self._known.update(bound)
        self.bound = bound

    def _bind(self, name, b):
        if b.layer not in self._layers:
            self._layers[b.layer] = Layer(b.layer)
        try:
            try:
                spec = _make_spec(b.shape, b.strides, b.dtype, b.device, "", b.bytes)
            except Error:               # more dimensions, or a longer name, than a spec has
                spec = _make_spec((b.bytes,), (1,), "|u1", b.device, b.dtype[:31], b.bytes)
            _call("arena_bind", self._layers[b.layer]._handle, b.slot.encode(), spec, b.pointer)
        except Error as error:
            if error.code not in (_SPEC, _INVALID):
                raise
            why = "a slot that the library owns has this name" if error.code == _SPEC else error
            self.skipped.append(Skipped(_full(name), b.dtype, str(why)))
            return False
        return True

    def _judge(self):
        report = self._before.verify() if self._before else None
        self.findings = [f for f in (report or {"findings": []})["findings"]
                         if (f["layer"], f["slot"]) in self._known]
        if not any(f["severity"] == "error" for f in self.findings):
            self._before = Snapshot()


_watches: Dict[str, Watch] = {}


def _living() -> List[Watch]:
    with _lock:
        return [w for w in _watches.values() if w.model is not None]


def watch(model: Any, path: str = "", *, devices: Union[str, Sequence[str], None] = None,
          required: bool = False, max_depth: Optional[int] = None,
          max_objects: Optional[int] = None, max_seconds: Optional[float] = None) -> Watch:
    """Bind every tensor that can be reached from a model by its path: parameters, buffers, plain
    attributes, containers, closures, partials, methods, objects with __dict__ or __slots__.

    Call it when the model is on the GPU; again after a capture that makes tensors of it. Nothing is
    kept alive by it, but a list, tuple or dict that is passed as @model; no code of the model runs.
    Not looked into: globals of functions, generators and iterators, what C code holds, what is more
    than @max_depth (24) levels deep. A tensor that is an attribute of a class is listed in skipped.
    A watch that another limit (@max_objects, 500,000; @max_seconds, 30) cut short, or that bound
    nothing, warns, and makes a reload over it unproven: gate() does not pass, and after require()
    the reload raises Refused.

    A tensor with several names is bound once, under a parameter's name if there is one. Watching
    the same @path again looks again, and gives back the same Watch, whose findings say what moved
    meanwhile. @path also tells two models of a process apart. @devices: whose tensors are bound,
    "cuda" (the default), "cuda:N" or "cpu". Devices and limits that are given hold from then on;
    what is not given stays as it was."""
    if required:
        require()
    _utf8(path)
    devices = None if devices is None else _devices(devices)
    with _lock:
        w = _watches.get(path)
        before = None if w is None else w.model
        other = before is not None and not _same_root(before, model)
        if w is None:
            w = _watches[path] = Watch(model, path)
    if other:
        raise Error(_INVALID, f"another model is watched as '{path}': give this one a path of its "
                              "own, or pass it to rebind() of that watch if it takes its place")
    w._look_like(devices, depth=max_depth, objects=max_objects, seconds=max_seconds)
    w.rebind(model)
    if w.gap:
        warnings.warn(w.gap, RuntimeWarning, stacklevel=2)
    return w


# ---- all ranks ----

class RankVerdict(NamedTuple):
    """What one rank said. reasons: why it does not pass; empty: it passes."""
    rank: int
    reasons: Tuple[str, ...]
    receipt: Optional[Dict[str, Any]]


class GateResult(NamedTuple):
    """passed: every rank that is expected passed one and the same reload. absent: ranks without the
    library, where that is allowed."""
    passed: bool
    ranks: Dict[int, RankVerdict]
    absent: Tuple[int, ...]

    def __bool__(self) -> bool:
        return self.passed

    def __str__(self) -> str:
        bad = [v for v in self.ranks.values() if v.reasons]
        if not bad:
            return (f"{len(self.ranks) - len(self.absent)} of {len(self.ranks)} ranks passed"
                    if self.passed else "no rank has the library: nothing was proven")
        told = "; ".join(f"rank {v.rank}: {', '.join(v.reasons)}" for v in bad[:8])
        more = f"; and {len(bad) - 8} more" if len(bad) > 8 else ""
        return f"{len(bad)} of {len(self.ranks)} ranks do not pass: {told}{more}"


class GateError(Error):
    """Ranks that did not pass. result is the GateResult."""

    def __init__(self, result: GateResult):
        super().__init__(_REFUSED, f"arena gate: {result}")
        self.result = result


def receipt(rank: int = 0) -> Dict[str, Any]:
    """What this process has to say of its last reload, as a small dict of plain values that JSON,
    pickle and every RPC can carry: what judge_ranks() judges."""
    there = available()
    said: Dict[str, Any] = {"rank": int(rank), "host": socket.gethostname(), "pid": os.getpid(),
                            "present": there}
    if not there:
        return said
    state, report = status() or {}, _last_report
    said["open"] = bool(state.get("reload_open"))
    said["unsafe"] = bool(state.get("unsafe"))
    # A reload that was not made by this client left no report here.
    if report and report["id"] == state.get("reload_id"):
        said.update({k: report[k] for k in ("id", "verdict", "why", "aborted", "generation",
                                            "scope")})
        said["findings"] = [f["text"] for f in report["findings"] if f["severity"] == "error"][:8]
    return said


def _rank_reasons(r):
    """Why one receipt, for itself, is no pass."""
    if not isinstance(r, dict) or "present" not in r:
        yield f"sent no receipt but {type(r).__name__}" if r is not None else "sent no receipt"
    elif not r["present"]:
        yield "libarena_shim.so is not loaded, or turned off, in its process"
    elif r.get("open"):
        yield "its reload is still open"
    elif "id" not in r:
        yield "it made no reload"
    elif type(r["id"]) is not int or r["id"] < 1:
        yield f"its receipt has no reload's number but id {_shown(r['id'])}"
    elif r.get("verdict") != "pass":
        why, found = r.get("why"), r.get("findings")
        told = [why] * bool(why) + list(found if isinstance(found, (list, tuple)) else ())[:3]
        yield (f"reload {r['id']} {'was aborted' if r.get('aborted') else r.get('verdict')}: "
               + "; ".join(map(str, told))).rstrip(": ")
    elif r.get("unsafe"):
        yield "the process is unsafe until a full reload passes"


def _which(r):
    return r["id"], json.dumps(r.get("scope"), sort_keys=True, default=_shown)


def judge_ranks(receipts: Iterable[Optional[Dict[str, Any]]], world: Union[int, Iterable[int]],
                required: bool = True) -> GateResult:
    """Did every rank pass the same reload? A pure function, for a controller that has the receipts
    of its workers by whatever RPC. @world: how many ranks, or which ones."""
    expected = list(range(world)) if isinstance(world, int) else list(world)
    by_rank: Dict[int, List[Any]] = {rank: [] for rank in expected}
    reasons: Dict[int, List[str]] = {rank: [] for rank in expected}
    for r in receipts:
        rank = r.get("rank") if isinstance(r, dict) else None
        if r is not None:
            by_rank.setdefault(rank if type(rank) is int else -1, []).append(r)
    for rank, sent in by_rank.items():
        if rank not in reasons:
            reasons[rank] = ["is not one of the ranks that are expected"]
        elif len(sent) != 1:
            reasons[rank].append(f"sent {len(sent)} receipts" if sent else "sent no receipt")
        else:
            reasons[rank] += _rank_reasons(sent[0])
    absent = [rank for rank in expected if len(by_rank[rank]) == 1 and not required
              and isinstance(by_rank[rank][0], dict) and not by_rank[rank][0].get("present", True)]
    for rank in absent:
        reasons[rank] = []
    passing = [rank for rank in expected if not reasons[rank] and rank not in absent]
    _add_strays(passing, by_rank, reasons)
    passed = bool(passing) and not any(reasons.values())
    return GateResult(passed, {rank: RankVerdict(rank, tuple(reasons[rank]),
                                                 sent[0] if sent else None)
                               for rank, sent in sorted(by_rank.items())}, tuple(absent))


def _add_strays(passing, by_rank, reasons):
    """All passed, but not the same reload: those that differ from most are named."""
    kinds = collections.Counter(_which(by_rank[rank][0]) for rank in passing)
    if len(kinds) < 2:
        return
    usual = kinds.most_common(1)[0][0]
    example = next(rank for rank in passing if _which(by_rank[rank][0]) == usual)
    for rank in passing:
        mine = _which(by_rank[rank][0])
        if mine != usual:
            what = "id" if mine[0] != usual[0] else "scope"
            i = 0 if what == "id" else 1
            reasons[rank].append(f"passed another reload: {what} {mine[i]}, rank {example} has "
                                 f"{usual[i]}")


_gates: Dict[str, int] = collections.defaultdict(int)      # calls so far, by group


def _group(group):
    """@return (my rank, all ranks of the group, store) or None: this process is alone."""
    torch = sys.modules.get("torch")
    dist = getattr(torch, "distributed", None)
    if not dist or not dist.is_available() or not dist.is_initialized():
        text = os.environ.get("WORLD_SIZE") or "1"
        if not text.isdecimal():
            raise Error(_INVALID, f"gate: WORLD_SIZE is {text!r}: set the number of ranks, or none")
        world = int(text)
        if group is not None or world > 1:
            raise Error(_INVALID, f"gate: torch.distributed is not initialised in this process, "
                                  f"WORLD_SIZE is {world}: call init_process_group() first, or "
                                  "send receipt() to judge_ranks() by other means")
        return None
    c10d = sys.modules["torch.distributed.distributed_c10d"]
    if group is None:
        ranks = list(range(dist.get_world_size()))
    elif hasattr(dist, "get_process_group_ranks"):
        ranks = sorted(dist.get_process_group_ranks(group))
    else:                               # before PyTorch 2.0
        ranks = sorted(c10d._pg_group_ranks[group])
    return dist.get_rank(), ranks, c10d._get_default_store()


def _exchange(store, ranks, mine, seconds):
    """Receipts of all ranks by the store of the process group, which works with every backend and
    has a timeout. @return those that came."""
    group = ",".join(map(str, ranks))
    with _lock:
        number = _gates[group]
        _gates[group] += 1
    deadline = time.monotonic() + seconds
    base = f"arena/gate/{zlib.crc32(group.encode()):08x}/{number}"

    def wait(keys):
        """@return are they there in time? Raises if the store itself is gone."""
        left = max(deadline - time.monotonic(), 0.01)
        try:
            store.wait(keys, datetime.timedelta(seconds=left))
            return True
        except Exception:               # PyTorch has no type of its own for a timeout
            if time.monotonic() < deadline:
                raise
            return False

    store.set(f"{base}/{mine['rank']}", json.dumps(mine))
    came = []
    for rank in ranks:
        if wait([f"{base}/{rank}"]):
            came.append(json.loads(store.get(f"{base}/{rank}")))
    if len(came) == len(ranks):
        # The one that has the store must not go before the others have read it.
        with contextlib.suppress(Exception):
            store.set(f"{base}/read/{mine['rank']}", "")
            wait([f"{base}/read/{rank}" for rank in ranks])
            if number:
                store.delete_key(base.rpartition("/")[0] + f"/{number - 1}/{mine['rank']}")
    return came


def gate(group: Any = None, timeout: float = 60.0, required: bool = True) -> GateResult:
    """Serve only if every rank of @group (torch.distributed; None: all) passed the same reload.

    To be called by every rank, after its reload. @return the verdicts of all ranks; raises
    GateError, on every rank, with the ranks that do not pass and the reasons of each; one that does
    not answer within @timeout seconds is named as well. required=False: ranks without the library
    do not count; if none has it, nothing is raised, and the result is not passed all the same."""
    if not required and not available():
        _absent()
    where = _group(group)
    rank, ranks, store = where or (0, [0], None)
    mine = receipt(rank)
    try:
        came = _exchange(store, ranks, mine, timeout) if store is not None else [mine]
    except Exception as error:
        raise Error(_INVALID, f"gate: the store of the process group (on rank {ranks[0]}, or its "
                              f"launcher) does not answer: {error}") from error
    result = judge_ranks(came, ranks, required)
    late = sorted(set(ranks) - {r["rank"] for r in came})
    if late:
        verdicts = {n: v._replace(reasons=(f"no answer within {timeout:g} seconds",))
                    if n in late else v for n, v in result.ranks.items()}
        result = result._replace(ranks=verdicts)
    if any(v.reasons for v in result.ranks.values()):
        raise GateError(result)
    return result


# ---- caches and manifests ----

def cache(name: str, flush: Optional[Callable[[int], None]] = None) -> None:
    """Announce a cache that a reload makes stale. @flush(generation) is called at the end of a
    reload; it fails by raising. None: cache_flushed() acknowledges it."""
    def call(_, generation):
        try:
            flush(generation)
            return 0
        except BaseException as error:  # said here: C has no exceptions
            warnings.warn(f"flush of cache {name}: {error!r}", RuntimeWarning, stacklevel=2)
            return 1

    callback = _FLUSH() if flush is None else _FLUSH(call)
    _callbacks.append(callback)         # for ever: one that is replaced may be running
    _call("arena_cache_register", _utf8(name), callback, None)


def cache_flushed(name: str) -> None:
    _call("arena_cache_flushed", _utf8(name))


def manifest(path: Any) -> None:
    """Read what must arrive from a JSON file (arena(3))."""
    try:
        name = os.fsencode(path)
    except TypeError:
        raise Error(_INVALID, f"manifest: {_shown(path)}: pass a path") from None
    _utf8(name.decode(errors="replace"))
    _call("arena_manifest_load", name)
