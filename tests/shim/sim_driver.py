# SPDX-License-Identifier: Apache-2.0
"""The few driver calls that tests of the Python client make themselves, and arrays of others."""
import ctypes


class Driver:
    """The few calls that the tests make themselves."""

    def __init__(self):
        self.lib = ctypes.CDLL("libcuda.so.1")
        context, device = ctypes.c_void_p(), ctypes.c_int()
        self.do("cuInit", 0)
        self.do("cuDeviceGet", ctypes.byref(device), 0)
        self.do("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self.do("cuCtxSetCurrent", context)
        self.context = context

    def do(self, name, *arguments):
        result = getattr(self.lib, name)(*arguments)
        if result:
            raise RuntimeError(f"{name}: {result}")

    def alloc(self, count):
        p = ctypes.c_uint64()
        self.do("cuMemAlloc_v2", ctypes.byref(p), ctypes.c_size_t(count))
        return p.value

    def read(self, pointer, count):
        self.do("cuCtxSynchronize")
        values = (ctypes.c_int * count)()
        self.do("cuMemcpyDtoH_v2", values, ctypes.c_uint64(pointer), ctypes.c_size_t(4 * count))
        return list(values)

    def free(self, pointer):
        self.do("cuMemFree_v2", ctypes.c_uint64(pointer))

    def register(self, pointer, count):
        """Host memory, for which the ledger has a range from here on."""
        self.do("cuMemHostRegister_v2", ctypes.c_void_p(pointer), ctypes.c_size_t(count), 0)

    def capture(self, sources, to, count, before=None):
        """A graph that copies @count bytes of each of @sources to @to. @return (exec, stream).
        @before is called first, while the stream captures."""
        stream, graph, made = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
        self.do("cuStreamCreate", ctypes.byref(stream), 1)
        self.do("cuStreamBeginCapture_v2", stream, 2)
        if before:
            before()
        for source in sources:
            self.do("cuMemcpyAsync", ctypes.c_uint64(to), ctypes.c_uint64(source),
                    ctypes.c_size_t(count), stream)
        self.do("cuStreamEndCapture", stream, ctypes.byref(graph))
        self.do("cuGraphInstantiateWithFlags", ctypes.byref(made), graph, ctypes.c_uint64(0))
        return made, stream

    def launch(self, graph):
        """@return what the driver said."""
        result = self.lib.cuGraphLaunch(*graph)
        self.do("cuStreamSynchronize", graph[1])
        return result

    def fill(self, pointer, value, count):
        self.do("cuMemsetD32_v2", ctypes.c_uint64(pointer), value, ctypes.c_size_t(count))


class OnDevice:
    """An array of somebody else, as CuPy's."""

    def __init__(self, pointer, shape, strides=None):
        self.__cuda_array_interface__ = {"shape": shape, "typestr": "<i4", "version": 3,
                                         "data": (pointer, False), "strides": strides,
                                         "stream": None}
