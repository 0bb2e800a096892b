# SPDX-License-Identifier: Apache-2.0
"""Calls of the decode kernels' C twins (kernels/decode/decode.h) with tensors of PyTorch.

    twins = Twins(library)
    twins.call("decode_add", x=a, y=b, out=c, count=9)

Addresses are tensors or None, the rest numbers; each parameter has to be given.
"""
import ctypes as c

import torch

PARAMS_MAX = 20
TYPES = {"f": c.c_float, 4: c.c_uint32, 8: c.c_uint64}


class Param(c.Structure):
    _fields_ = [("name", c.c_char_p), ("offset", c.c_uint16), ("size", c.c_uint16)]


class Row(c.Structure):
    _fields_ = [("name", c.c_char_p), ("doc", c.c_char_p), ("count", c.c_uint32),
                ("bytes", c.c_uint32), ("params", Param * PARAMS_MAX)]


class Twins:
    def __init__(self, path):
        self.lib = c.CDLL(path)
        for name in ("decode_at", "decode_find"):
            getattr(self.lib, name).restype = c.POINTER(Row)
        self.lib.decode_twin.restype = c.CFUNCTYPE(None, c.c_void_p)
        self.called = set()

    def names(self):
        i = 0
        while row := self.lib.decode_at(c.c_size_t(i)):
            yield row.contents.name.decode()
            i += 1

    def call(self, name, **values):
        row = self.lib.decode_find(name.encode()).contents
        args = c.create_string_buffer(row.bytes)
        params = {p.name.decode(): p for p in row.params[:row.count]}
        assert set(params) == set(values), f"{name}: {set(params) ^ set(values)}"
        for key, value in values.items():
            kind = "f" if isinstance(value, float) else params[key].size
            if isinstance(value, torch.Tensor):
                value = value.data_ptr()
            number = TYPES[kind](value or 0)
            assert c.sizeof(number) == params[key].size, f"{name}: {key}"
            c.memmove(c.addressof(args) + params[key].offset, c.addressof(number), c.sizeof(number))
        self.lib.decode_twin(name.encode())(c.addressof(args))
        self.called.add(name)
