#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""An HF transformers decoder, watched through reloads: torch_client.py healthy | moved | compile

Random weights, a static cache. Each attention layer has a tensor that is derived from a weight and
read by the graph instead of it, as MLA layers have W_UV. healthy: captured at 8 batch sizes in one
pool, 200 reloads in place. moved: one reload derives into new memory, and is found by path; then
everything is captured again. compile: torch.compile(mode="reduce-overhead"), reloads in place.
What is compared is what an eager step gives from the same inputs. Exit 77: no transformers.
"""
import pathlib
import sys

import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts"))
import arena  # noqa: E402

try:
    from transformers import LlamaConfig, LlamaForCausalLM, StaticCache
except ImportError as error:
    print(f"no transformers: {error}")
    sys.exit(77)

LAYERS, WIDTH, WORDS, LENGTH, POSITION = 3, 128, 512, 32, 5
BATCHES = (32, 24, 16, 12, 8, 4, 2, 1)      # the largest first: the others fit into its pool
RELOADS, CHECK_EVERY = 200, 20


class Derived(torch.nn.Module):
    """A projection that keeps its weight as the checkpoint has it, and reads another tensor."""

    def __init__(self, linear):
        super().__init__()
        self.weight = linear.weight
        self.W_UV = self.weight.detach().t().contiguous()

    def derive(self, move):
        fresh = self.weight.detach().t().contiguous()
        if move:
            self.W_UV = fresh                   # the fault
        else:
            self.W_UV.copy_(fresh)

    def forward(self, x):
        return torch.matmul(x, self.W_UV)


def make_model(layers):
    torch.manual_seed(0)
    config = LlamaConfig(vocab_size=WORDS, hidden_size=WIDTH, intermediate_size=2 * WIDTH,
                         num_hidden_layers=layers, num_attention_heads=4, num_key_value_heads=4,
                         max_position_embeddings=LENGTH)
    model = LlamaForCausalLM(config).to("cuda").eval()
    for layer in model.model.layers:
        layer.self_attn.v_proj = Derived(layer.self_attn.v_proj)
    return model


def make_checkpoint(model, seed):
    generator = torch.Generator("cuda").manual_seed(seed)
    return {name: torch.randn(p.shape, device="cuda", generator=generator) * 0.2
            for name, p in model.named_parameters()}


def load(model, checkpoint, move=False):
    for path, module in model.named_modules():
        own = list(module.named_parameters(recurse=False))
        if not own:
            continue
        with arena.layer(path):
            for name, p in own:
                p.copy_(checkpoint[f"{path}.{name}"])
                arena.receive(f"{path}.{name}", bytes=p.numel() * p.element_size())
            if isinstance(module, Derived):
                module.derive(move)


class Step:
    """One decode step of a batch: inputs and cache stay where they are."""

    def __init__(self, model, batch):
        generator = torch.Generator("cuda").manual_seed(batch)
        self.model, self.batch, self.graph, self.tokens = model, batch, None, None
        self.ids = torch.randint(0, WORDS, (batch, 1), device="cuda", generator=generator)
        self.positions = torch.full((batch, 1), POSITION, device="cuda")
        seen = torch.arange(LENGTH, device="cuda") <= POSITION
        self.mask = seen.expand(batch, 1, 1, LENGTH).contiguous()
        self.cache = StaticCache(config=model.config, max_cache_len=LENGTH)

    def rewind(self):
        """Each step is the same one: it writes the same place of the cache."""
        for layer in self.cache.layers:
            layer.cumulative_length.fill_(POSITION)

    def forward(self, model=None):
        # A compiled model has no truth value: it has a len() that raises.
        model = self.model if model is None else model
        out = model(input_ids=self.ids, position_ids=self.positions, attention_mask=self.mask,
                    past_key_values=self.cache, use_cache=True)
        return out.logits[:, -1].argmax(-1)

    def eager(self):
        self.rewind()
        return self.forward().tolist()

    def warm_up(self):
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(2):
                self.forward()                  # the first one makes the cache
                self.rewind()
        torch.cuda.current_stream().wait_stream(side)

    def capture(self, pool):
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph, pool=pool):
            self.tokens = self.forward()

    def replay(self):
        self.rewind()
        self.graph.replay()
        torch.cuda.synchronize()
        return self.tokens.tolist()


def make_steps(model):
    steps = [Step(model, batch) for batch in BATCHES]
    for step in steps:
        step.warm_up()
    torch.cuda.synchronize()
    capture_all(steps)
    return steps


def capture_all(steps):
    for step in steps:
        step.graph = step.tokens = None
    pool = torch.cuda.graph_pool_handle()
    for step in steps:
        step.capture(pool)


def count_equal(steps):
    return sum(step.replay() == step.eager() for step in steps)


def run_healthy(model):
    steps, watch = make_steps(model), arena.watch(model, required=True)
    checkpoints = [make_checkpoint(model, seed) for seed in (1, 2)]
    equal, checks, seen = 0, 0, set()
    for n in range(RELOADS):
        with arena.reload(watch=watch) as r:
            load(model, checkpoints[n % 2])
        assert r.report["verdict"] == "pass" and not r.report["findings"], r.report
        if n % CHECK_EVERY in (0, 1):
            equal += count_equal(steps)
            checks += len(steps)
            seen.add(tuple(steps[0].tokens.tolist()))
    assert watch.complete, watch.skipped
    assert arena.gate(required=True)
    print(f"{len(watch.bound)} tensors watched")
    print(f"{RELOADS} reloads in place: {equal} of {checks} steps equal, {len(seen)} different "
          "texts")


def run_moved(model):
    steps, watch = make_steps(model), arena.watch(model, required=True)
    load_with(model, watch, 1)
    print(f"before: {count_equal(steps)} of {len(steps)} equal")
    derived = [(f"model.layers.{i}.self_attn.v_proj", layer.self_attn.v_proj)
               for i, layer in enumerate(model.model.layers)]
    old = [d.W_UV.data_ptr() for _, d in derived]
    refused = load_with(model, watch, 2, move=True)
    for (path, d), base in zip(derived, old):
        print(f"moved {path} {base:#x} {d.W_UV.data_ptr():#x}")
    print(f"the reload was {'refused' if refused else 'reported'}")
    replays_refused, wrong = 0, 0
    for step in steps:
        try:
            wrong += step.replay() != step.eager()
        except RuntimeError:                    # of the driver: an ordinary exception
            replays_refused += 1
    print(f"{replays_refused} replays refused, {wrong} served wrong tokens")
    capture_all(steps)
    assert not load_with(model, watch, 1)
    print(f"captured again: {count_equal(steps)} of {len(steps)} equal")


def load_with(model, watch, seed, move=False):
    """@return was the reload refused?"""
    checkpoint = make_checkpoint(model, seed)
    try:
        with arena.reload(watch=watch):
            load(model, checkpoint, move)
        return False
    except arena.Refused as error:
        print(f"refused: {str(error).splitlines()[0]}")
        return True


def run_compile(model):
    step = Step(model, 4)
    step.warm_up()
    compiled = torch.compile(model, mode="reduce-overhead")
    watch = arena.watch(model, required=True)
    checkpoints = [make_checkpoint(model, seed) for seed in (1, 2)]
    equal, checks = 0, 0
    for n in range(24):
        with arena.reload(watch=watch) as r:
            load(model, checkpoints[n % 2])
        assert r.report["verdict"] == "pass" and not r.report["findings"], r.report
        step.rewind()
        torch.compiler.cudagraph_mark_step_begin()
        tokens = step.forward(compiled).tolist()
        equal += tokens == step.eager()
        checks += 1
    print(f"compiled: {equal} of {checks} steps equal")


if __name__ == "__main__":
    with torch.no_grad():
        # Compilation unrolls the layers, and takes its time for each.
        globals()[f"run_{sys.argv[1]}"](make_model(1 if sys.argv[1] == "compile" else LAYERS))
