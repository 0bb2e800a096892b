#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The engine of the report that README.md shows: serve.py [KERNELS.fatbin]

A small decode engine over the driver API: layers whose weights it captures in a graph for each batch
size, watched by name, three reloads. The second one converts the scales of some layers into new
memory and frees the old: the graphs still read it. Then the graphs are captured again. Runs on the
simulated driver and on a GPU; exit 0: the wrong step was refused (ARENA_GATE=strict), 3: it was served.
"""
import ctypes
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "scripts"), str(ROOT / "tests/shim")]

import arena  # noqa: E402
from sim_driver import Driver, OnDevice  # noqa: E402

LAYERS, BATCHES = 6, (1, 2, 4, 8)
BYTES = {"qkv_proj.weight": 4 << 20, "qkv_proj.scales": 256 << 10, "down_proj.weight": 2 << 20,
         "down_proj.scales": 128 << 10}


class Linear:
    """What watch() knows of nn.Module."""

    def __init__(self, **parameters):
        self._parameters, self._buffers, self._modules = parameters, {}, {}


def tensor(driver, size):
    return OnDevice(driver.alloc(size), (size // 4,))


def address(t):
    return t.__cuda_array_interface__["data"][0]


def load_model(driver):
    model = Linear()
    for i in range(LAYERS):
        layer = model._modules[f"layers.{i}"] = Linear()
        for name in ("qkv_proj", "down_proj"):
            layer._modules[name] = Linear(
                weight=tensor(driver, BYTES[name + ".weight"]), scales=tensor(driver, BYTES[name + ".scales"]))
    return model


def linears(model):
    return [linear for layer in model._modules.values() for linear in layer._modules.values()]


class Runner:
    def __init__(self, driver, image):
        self.driver, self.function, self.graphs = driver, ctypes.c_void_p(), {}
        module = ctypes.c_void_p()
        driver.do("cuModuleLoadData", ctypes.byref(module), image)
        driver.do("cuModuleGetFunction", ctypes.byref(self.function), module, b"k_acc")
        self.hidden = driver.alloc(4096)

    def launch(self, stream, source, count):
        arguments = [ctypes.c_uint64(self.hidden), ctypes.c_uint64(source), ctypes.c_size_t(count)]
        pointers = (ctypes.c_void_p * 3)(*(ctypes.addressof(a) for a in arguments))
        self.driver.do("cuLaunchKernel", self.function, 1, 1, 1, 32, 1, 1, 0, stream, pointers, None)

    def capture(self, model, batch):
        stream, graph, made = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
        self.driver.do("cuStreamCreate", ctypes.byref(stream), 1)
        self.driver.do("cuStreamBeginCapture_v2", stream, 2)
        for linear in linears(model):
            for t in linear._parameters.values():
                self.launch(stream, address(t), batch)
        self.driver.do("cuStreamEndCapture", stream, ctypes.byref(graph))
        self.driver.do("cuGraphInstantiateWithFlags", ctypes.byref(made), graph, ctypes.c_uint64(0))
        self.graphs[batch] = made, stream

    def capture_all(self, model):
        for made, _ in self.graphs.values():
            self.driver.do("cuGraphExecDestroy", made)
        for batch in BATCHES:
            self.capture(model, batch)

    def decode_step(self, batch):
        return self.driver.launch(self.graphs[batch])


def copy_weights(driver, model, value):
    for linear in linears(model):
        for t in linear._parameters.values():
            driver.fill(address(t), value, 1024)


def process_weights_after_loading(driver, linear):
    """As a quantised layer does it: new memory for the converted scales, the old is dropped."""
    old = linear._parameters["scales"]
    new = tensor(driver, old.__cuda_array_interface__["shape"][0] * 4)
    linear._parameters["scales"] = new
    driver.free(address(old))
    return new


def update_weights(driver, model, watch, value, convert):
    try:
        with arena.reload(watch=watch):
            copy_weights(driver, model, value)
            for linear in linears(model)[1::4] if convert else []:
                process_weights_after_loading(driver, linear)
    except arena.Refused as refused:
        print(f"serve: {refused}", file=sys.stderr)


def main():
    arena.require()
    driver = Driver()
    model = load_model(driver)
    image = pathlib.Path(sys.argv[1]).read_bytes() if len(sys.argv) > 1 else b""
    runner = Runner(driver, image)
    copy_weights(driver, model, 1)
    runner.capture_all(model)
    watch = arena.watch(model, "model")
    for batch in BATCHES:
        runner.decode_step(batch)
    update_weights(driver, model, watch, 2, convert=False)
    runner.decode_step(4)
    update_weights(driver, model, watch, 3, convert=True)
    results = [runner.decode_step(batch) for batch in (4, 8)]
    runner.capture_all(model)
    update_weights(driver, model, watch, 4, convert=False)
    runner.decode_step(4)
    return 0 if all(results) else 3


if __name__ == "__main__":
    sys.exit(main())
