#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The twins of the decode kernels against PyTorch: decode_oracle.py LIBRARY

The references are f64, written from the models' own definitions. Exit 77: there is no PyTorch.
"""
import random
import sys
import unittest

try:
    import torch
    import torch.nn.functional as F

    from decode_twins import Twins
except ImportError:
    print("skip: no PyTorch")
    sys.exit(77)

BF16, F64, I32, I64 = torch.bfloat16, torch.float64, torch.int32, torch.int64
# Flags of decode.h.
F32_FLAG, GPTJ, PAGED = 1, 2, 4
TWINS = None


def rand(*shape, dtype=BF16):
    return (torch.rand(*shape, dtype=F64) * 4 - 2).to(dtype)


def f64(x):
    return x.to(F64)


def last_place(x):
    """Of bf16: 8 bits of mantissa."""
    return torch.exp2(torch.floor(torch.log2(x.abs().clamp(min=2.0 ** -120))) - 7)


def e4m3_values():
    """All of OCP's E4M3 from 0 on, by its definition; code 0x7f is a NaN."""
    return torch.tensor([(c % 8) * 2.0 ** -9 if c < 8 else (8 + c % 8) * 2.0 ** (c // 8 - 10)
                         for c in range(127)], dtype=F64)


def e4m3_decode(codes):
    values = e4m3_values()[(codes & 127).long()]
    return torch.where(codes >= 128, -values, values)


def e4m3_encode(x):
    """Nearest, of equally near ones the even code, by looking at all of them."""
    distance = (x.to(F64).abs().unsqueeze(-1) - e4m3_values()).abs()
    near = distance == distance.min(-1, keepdim=True).values
    codes = torch.arange(127)
    best = torch.where(near, codes + 1000 * (codes % 2), 10000).argmin(-1)
    return (best + 128 * torch.signbit(x)).to(torch.uint8)


class Case(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(20251129)
        random.seed(20251129)

    def near(self, got, want, ulps):
        """As decode.h bounds it: last places of the result, and a part of the largest."""
        self.assertEqual(got.shape, want.shape)
        if want.numel():
            bound = ulps * last_place(want) + want.abs().max() * 2.0 ** -14
            worst = ((f64(got) - want).abs() / bound).max().item()
            self.assertLessEqual(worst, 1.0)

    def same(self, got, want):
        self.assertTrue(torch.equal(got, want), f"\n{got}\n{want}")


class Rows(Case):
    def test_add(self):
        for n in (0, 1, 7, 1000):
            x, y, out = rand(n), rand(n), torch.zeros(n, dtype=BF16)
            TWINS.call("decode_add", x=x, y=y, out=out, count=n)
            self.same(out, x + y)

    def argmax(self, x):
        out = torch.full((x.shape[0],), -5)
        TWINS.call("decode_argmax", logits=x, out=out, tokens=x.shape[0], n=x.shape[1],
                   flags=F32_FLAG if x.dtype == torch.float32 else 0)
        return out.tolist()

    def test_argmax(self):
        for dtype in (BF16, torch.float32):
            for n in (1, 5, 333):
                x = torch.randint(-9, 3, (6, n)).to(dtype)
                rows = [row.tolist() for row in x]
                self.assertEqual(self.argmax(x), [row.index(max(row)) for row in rows])
            x = torch.tensor([[1, float("nan"), 9, float("nan")], [float("-inf")] * 4]).to(dtype)
            self.assertEqual(self.argmax(x), [1, 0])

    def test_copy_rows(self):
        for rows, width in ((1, 1), (5, 16), (4, 37)):
            x = torch.randint(0, 256, (rows, width + 3), dtype=torch.uint8)
            out = torch.randint(0, 256, (rows, width + 5), dtype=torch.uint8)
            want = out.clone()
            want[:, :width] = x[:, :width]
            TWINS.call("decode_copy_rows", **{"in": x}, out=out, rows=rows, row_bytes=width,
                       in_stride=width + 3, out_stride=width + 5)
            self.same(out, want)

    def test_embedding(self):
        for hidden in (1, 9, 64):
            table, out = rand(20, hidden), rand(7, hidden)
            ids = torch.tensor([100, 119, 103, 99, 120, -1, 103])
            TWINS.call("decode_embedding", ids=ids, table=table, out=out, tokens=7, hidden=hidden,
                       first=100, vocab=20)
            inside = (ids >= 100) & (ids < 120)
            want = F.embedding((ids - 100).clamp(0, 19), table) * inside.unsqueeze(-1)
            self.same(out, want)

    def test_rms_norm(self):
        for tokens, hidden, gap in ((1, 1, 0), (3, 33, 5), (2, 256, 8)):
            x, w = rand(tokens, hidden + gap), rand(hidden)
            out = torch.zeros(tokens, hidden, dtype=BF16)
            TWINS.call("decode_rms_norm", x=x, weight=w, out=out, tokens=tokens, hidden=hidden,
                       x_stride=hidden + gap, eps=1e-2)
            y = f64(x[:, :hidden])
            y = (y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-2)).to(BF16)
            self.near(out, f64(y) * f64(w), 2)

    def test_fused_add_rms_norm(self):
        x, r, w = rand(3, 50), rand(3, 50), rand(50)
        z = x + r
        y = (f64(z) * torch.rsqrt(f64(z).pow(2).mean(-1, keepdim=True) + 1e-5)).to(BF16)
        TWINS.call("decode_fused_add_rms_norm", x=x, residual=r, weight=w, tokens=3, hidden=50,
                   eps=1e-5)
        self.same(r, z)
        self.near(x, f64(y) * f64(w), 2)

    def test_silu_and_mul(self):
        x, out = rand(4, 2 * 37), torch.zeros(4, 37, dtype=BF16)
        TWINS.call("decode_silu_and_mul", x=x, out=out, tokens=4, d=37)
        self.near(out, f64(F.silu(f64(x[:, :37])).to(BF16)) * f64(x[:, 37:]), 2)

    def test_swigluoai_and_mul(self):
        x, out = rand(4, 2 * 37) * 8, torch.zeros(4, 37, dtype=BF16)
        TWINS.call("decode_swigluoai_and_mul", x=x, out=out, tokens=4, d=37, alpha=1.702, limit=7.0)
        gate = f64(x[:, ::2]).clamp(max=7.0)
        up = f64(x[:, 1::2]).clamp(min=-7.0, max=7.0)
        self.near(out, (up + 1) * gate * torch.sigmoid(gate * 1.702), 1)

    def test_swigluoai_keeps_nan(self):
        nan = float("nan")
        x, out = torch.tensor([[nan, 1, 1, nan, 1, 1]], dtype=BF16), torch.zeros(1, 3, dtype=BF16)
        TWINS.call("decode_swigluoai_and_mul", x=x, out=out, tokens=1, d=3, alpha=1.702, limit=7.0)
        gate, up = x[:, ::2].clamp(max=7.0), x[:, 1::2].clamp(min=-7.0, max=7.0)
        self.same(out.isnan(), ((up + 1) * gate).isnan())


class Rotary(Case):
    def rotate(self, x, cos, sin, gptj):
        """@x [T, heads, rot]; cos, sin [T, rot / 2]. As complex numbers."""
        x = f64(x)
        half = x.shape[-1] // 2
        a, b = (x[..., ::2], x[..., 1::2]) if gptj else (x[..., :half], x[..., half:])
        z = torch.complex(a, b) * torch.complex(cos, sin).unsqueeze(1)
        return (torch.stack((z.real, z.imag), -1).flatten(-2) if gptj
                else torch.cat((z.real, z.imag), -1))

    def test_rotary(self):
        tokens, heads, kv_heads, front = 5, 3, 2, 4
        for rot, gptj, dtype in ((2, 0, BF16), (16, GPTJ, BF16), (10, 0, torch.float32)):
            table = rand(9, rot, dtype=dtype)
            q, k = rand(tokens, heads, front + rot), rand(tokens, kv_heads, rot + 1)
            positions = torch.tensor([8, 0, -1, 9, 3])
            want_q, want_k = q.clone(), k.clone()
            inside = (positions >= 0) & (positions < 9)
            row = f64(table)[positions[inside]]
            cos, sin = row[:, :rot // 2], row[:, rot // 2:]
            want_q[inside, :, front:] = self.rotate(q[inside, :, front:], cos, sin, gptj).to(BF16)
            want_k[inside, :, :rot] = self.rotate(k[inside, :, :rot], cos, sin, gptj).to(BF16)
            for key in (k, None):
                q_now, k_now = q.clone(), k.clone()
                TWINS.call("decode_rotary", positions=positions, query=q_now[:, :, front:],
                           key=k_now if key is not None else None, cos_sin=table, tokens=tokens,
                           heads=heads, kv_heads=kv_heads, rot=rot, max_position=9,
                           q_stride=heads * (front + rot), q_head=front + rot,
                           k_stride=kv_heads * (rot + 1), k_head=rot + 1,
                           flags=gptj | (F32_FLAG if dtype == torch.float32 else 0))
                self.near(q_now, f64(want_q), 1)
                self.same(q_now[~inside], q[~inside])
                self.same(q_now[:, :, :front], q[:, :, :front])
                self.near(k_now, f64(want_k if key is not None else k), 1)


class Fp8(Case):
    def test_quant(self):
        x = torch.cat((rand(300) * 400, rand(300) / 100, torch.zeros(2, dtype=BF16)))
        for scale in (1.0, 0.25):
            out = torch.zeros(len(x), dtype=torch.uint8)
            TWINS.call("decode_fp8_quant", x=x, scale=torch.tensor([scale]), out=out, count=len(x))
            self.same(out, e4m3_encode(f64(x) / scale))

    def test_amax(self):
        x, scale = rand(100), torch.zeros(1)
        for part in (x[:60], x[60:]):
            TWINS.call("decode_fp8_amax", x=part, scale=scale, count=len(part))
        self.assertEqual(scale.item(), (x.abs().max().float() / 448).item())
        x[3] = float("nan")
        TWINS.call("decode_fp8_amax", x=x, scale=scale, count=len(x))
        self.assertEqual(scale.item(), (x.nan_to_num().abs().max().float() / 448).item())
        scale[0] = float("nan")
        TWINS.call("decode_fp8_amax", x=x, scale=scale, count=len(x))
        self.assertTrue(scale.isnan().item())

    def test_quant_token(self):
        x = rand(5, 33)
        x[2] = 0
        for bound in (None, torch.tensor([1.0])):
            out, scales = torch.zeros(5, 33, dtype=torch.uint8), torch.zeros(5)
            TWINS.call("decode_fp8_quant_token", x=x, bound=bound, out=out, scales=scales,
                       tokens=5, k=33)
            want = x.float().abs().amax(-1)
            want = want.clamp(max=bound.item()) if bound is not None else want
            want = (want / 448).clamp(min=1 / (448 * 512))
            self.same(scales, want)
            self.same(out, e4m3_encode(x.float() / want.unsqueeze(-1)))


def layout(k, v, fp8, paged):
    """Caches [blocks, block_size, heads, D] as engines' older layout, by view and permute."""
    if not paged:
        return k.contiguous(), v.contiguous()
    blocks, size, heads, d = k.shape
    x = 16 if fp8 else 8
    k = k.view(blocks, size, heads, d // x, x).permute(0, 2, 3, 1, 4)
    return k.contiguous(), v.permute(0, 2, 3, 1).contiguous()


class Cache(Case):
    def test_reshape_and_cache(self):
        blocks, size, heads, d = 5, 3, 2, 32
        slots = torch.tensor([14, 0, -1, 7, 15, 3])
        inside = (slots >= 0) & (slots < blocks * size)
        for fp8 in (False, True):
            for flags in (0, PAGED):
                dtype = torch.uint8 if fp8 else BF16
                fill = torch.randint(0, 100, (2, blocks, size, heads, d)).to(dtype)
                key, value = rand(6, heads, d), rand(6, heads * d + 5)
                scale = (torch.tensor([0.5]), torch.tensor([0.75])) if fp8 else (None, None)
                caches = layout(fill[0], fill[1], fp8, flags)
                TWINS.call("decode_reshape_and_cache", key=key, value=value, k_cache=caches[0],
                           v_cache=caches[1], slots=slots, k_scale=scale[0], v_scale=scale[1],
                           tokens=6, kv_heads=heads, head_size=d, block_size=size, blocks=blocks,
                           k_stride=heads * d, v_stride=heads * d + 5, flags=flags)
                rows = (key[inside], value[inside, :heads * d].view(-1, heads, d))
                want = fill.clone()
                for i in range(2):
                    row = e4m3_encode(rows[i].float() / scale[i]) if fp8 else rows[i]
                    want[i].view(-1, heads, d)[slots[inside]] = row
                want = layout(want[0], want[1], fp8, flags)
                self.same(caches[0], want[0])
                self.same(caches[1], want[1])

    def test_concat_and_cache_mla(self):
        slots = torch.tensor([5, -1, 0, 6])
        for scale in (None, torch.tensor([0.5])):
            c, pe = rand(4, 12), rand(4, 7)
            cache = torch.randint(0, 100, (6, 15)).to(torch.uint8 if scale is not None else BF16)
            want = cache.clone()
            row = torch.cat((c[:, :10], pe[:, :5]), -1)
            row = e4m3_encode(row.float() / scale) if scale is not None else row
            want[5], want[0] = row[0], row[2]
            TWINS.call("decode_concat_and_cache_mla", kv_c=c, k_pe=pe, cache=cache, slots=slots,
                       scale=scale, tokens=4, latent=10, rope=5, block_size=2, blocks=3,
                       c_stride=12, pe_stride=7)
            self.same(cache, want)


class Attention(Case):
    def numbers(self, *shape, fp8):
        return torch.randint(0, 0x50, shape).to(torch.uint8) if fp8 else rand(*shape)

    def values(self, x, scale):
        return f64(x) if scale is None else e4m3_decode(x) * scale.item()

    def reference(self, q, k, v, scale, sink, window):
        """q [heads, D], k and v [L, kv_heads, D]: the heads repeated, the sink as a column."""
        k, v = k[-window:] if window else k, v[-window:] if window else v
        k = k.repeat_interleave(q.shape[0] // k.shape[1], 1)
        v = v.repeat_interleave(q.shape[0] // v.shape[1], 1)
        logits = torch.einsum("hd,lhd->hl", q, k) * scale
        if sink is not None:
            logits = torch.cat((logits, f64(sink).unsqueeze(-1)), -1)
        weights = torch.softmax(logits, -1)[:, :v.shape[0]]
        return torch.einsum("hl,lhd->hd", weights, v)

    def paged(self, heads, kv_heads, d, fp8=False, flags=0, sinks=False, window=0):
        blocks, size, most = 11, 4, 5
        lens = torch.tensor([1, 17, 0, 20], dtype=I32)
        tables = torch.stack([torch.randperm(blocks)[:most] for _ in lens]).to(I32)
        k, v = (self.numbers(blocks, size, kv_heads, d, fp8=fp8) for _ in range(2))
        scale = (torch.tensor([0.5]), torch.tensor([0.75])) if fp8 else (None, None)
        caches = layout(k, v, fp8, flags)
        q, out = rand(4, heads * d + 3), rand(4, heads, d)
        sink = rand(heads, dtype=torch.float32) if sinks else None
        TWINS.call("decode_paged_attention", query=q, k_cache=caches[0], v_cache=caches[1],
                   tables=tables, lens=lens, sinks=sink, k_scale=scale[0], v_scale=scale[1],
                   out=out, scale=d ** -0.5, seqs=4, heads=heads, kv_heads=kv_heads, head_size=d,
                   block_size=size, blocks=blocks, max_blocks=most, window=window,
                   q_stride=heads * d + 3, flags=flags)
        for s, n in enumerate(lens.tolist()):
            if n == 0:
                self.same(out[s], torch.zeros_like(out[s]))
                continue
            rows = [self.values(x[tables[s].long()].flatten(0, 1)[:n], sc)
                    for x, sc in ((k, scale[0]), (v, scale[1]))]
            self.near(out[s], self.reference(f64(q[s, :heads * d]).view(heads, d), *rows,
                                             d ** -0.5, sink, window), 2)

    def test_paged(self):
        self.paged(4, 4, 64)
        self.paged(6, 2, 33)
        self.paged(8, 1, 256)
        self.paged(4, 2, 32, flags=PAGED)
        self.paged(4, 2, 32, fp8=True)
        self.paged(4, 2, 32, fp8=True, flags=PAGED)

    def test_paged_sinks(self):
        self.paged(4, 2, 16, sinks=True)
        self.paged(4, 2, 16, sinks=True, window=6)
        self.paged(4, 2, 16, window=1)

    def test_paged_bad_block(self):
        """A block outside of the cache counts as not there."""
        q, out = rand(1, 8), rand(1, 8)
        k, v = rand(2, 2, 1, 8), rand(2, 2, 1, 8)
        TWINS.call("decode_paged_attention", query=q, k_cache=k, v_cache=v,
                   tables=torch.tensor([[7, 1]], dtype=I32), lens=torch.tensor([3], dtype=I32),
                   sinks=None, k_scale=None, v_scale=None, out=out, scale=1.0, seqs=1, heads=1,
                   kv_heads=1, head_size=8, block_size=2, blocks=2, max_blocks=2, window=0,
                   q_stride=8, flags=0)
        self.same(out[0], v[1, 0, 0])

    def hostile(self, name, q, k, v, **more):
        """One sequence of one head, all of its cache: as PyTorch's, NaN and all."""
        out, n = rand(1, q.shape[1]), k.shape[0]
        TWINS.call(name, out=out, tables=torch.zeros(1, 1, dtype=I32), scale=1.0, seqs=1, heads=1,
                   lens=torch.tensor([n], dtype=I32), block_size=n, blocks=1, max_blocks=1, **more)
        want = torch.softmax(f64(q) @ f64(k).T, -1) @ f64(v)
        self.same(out.isnan(), want.isnan())
        self.near(out.nan_to_num(), want.nan_to_num(), 2)
        return want

    def hostile_numbers(self, width):
        """A query, and keys with a NaN, infinities, in the first token, another, all of them."""
        for bad in (float("nan"), float("inf"), float("-inf")):
            for at in ([0], [3], [0, 1, 2, 3, 4]):
                q, k = rand(1, width), rand(5, width)
                q[0, 0] = 1
                k[at, 0] = bad
                if bad > 0 or bad != bad or len(at) < 5:
                    yield q, k

    def test_paged_keeps_nan(self):
        for q, k in self.hostile_numbers(8):
            v = rand(5, 8)
            for nan in (False, True):
                if nan:
                    v[3, 2] = float("nan")
                want = self.hostile("decode_paged_attention", q, k, v, query=q, k_cache=k,
                                    v_cache=v, sinks=None, k_scale=None, v_scale=None, kv_heads=1,
                                    head_size=8, window=0, q_stride=8, flags=0)
                self.assertTrue(not nan or want.isnan().any())

    def test_mla_keeps_nan(self):
        for q, k in self.hostile_numbers(6):
            want = self.hostile("decode_mla_attention", q[:, :4].contiguous(), k[:, :4], k[:, :4],
                                q_c=q[:, :4].contiguous(), q_pe=torch.zeros(1, 2, dtype=BF16),
                                cache=k, cache_scale=None, latent=4, rope=2, pe_stride=2,
                                pe_head=2)
            self.assertTrue(want.isnan().any())

    def mla(self, latent, rope, fp8=False):
        blocks, size, most, heads = 7, 3, 4, 3
        lens = torch.tensor([12, 1, 0, 7], dtype=I32)
        tables = torch.stack([torch.randperm(blocks)[:most] for _ in lens]).to(I32)
        cache = self.numbers(blocks, size, latent + rope, fp8=fp8)
        scale = torch.tensor([0.5]) if fp8 else None
        q_c, q_pe = rand(4, heads, latent), rand(4, heads, rope + 2)
        out = rand(4, heads, latent)
        TWINS.call("decode_mla_attention", q_c=q_c, q_pe=q_pe, cache=cache, tables=tables,
                   lens=lens, cache_scale=scale, out=out, scale=0.1, seqs=4, heads=heads,
                   latent=latent, rope=rope, block_size=size, blocks=blocks, max_blocks=most,
                   pe_stride=heads * (rope + 2), pe_head=rope + 2)
        for s, n in enumerate(lens.tolist()):
            if n == 0:
                self.same(out[s], torch.zeros_like(out[s]))
                continue
            rows = self.values(cache[tables[s].long()].flatten(0, 1)[:n], scale).unsqueeze(1)
            q = torch.cat((f64(q_c[s]), f64(q_pe[s, :, :rope])), -1)
            self.near(out[s], self.reference(q, rows, rows[..., :latent], 0.1, None, 0), 2)

    def test_mla(self):
        self.mla(32, 8)
        self.mla(512, 64)
        self.mla(33, 5, fp8=True)

    def test_mla_absorbed(self):
        """With the heads' keys and values written out, as the model defines them."""
        heads, nope, rope, dim_v, latent, n = 3, 16, 8, 12, 32, 9
        kv_b = rand(heads, nope + dim_v, latent) / 8
        w_uk, w_uv = kv_b[:, :nope].contiguous(), kv_b[:, nope:].transpose(1, 2).contiguous()
        q, cache = rand(1, heads, nope + rope), rand(3, 3, latent + rope)
        q_c, o = torch.zeros(1, heads, latent, dtype=BF16), torch.zeros(1, heads, latent, dtype=BF16)
        out = torch.zeros(1, heads, dim_v, dtype=BF16)
        TWINS.call("decode_bmm", x=q, w=w_uk, out=q_c, tokens=1, heads=heads, n=latent, k=nope,
                   x_stride=heads * (nope + rope), x_head=nope + rope)
        TWINS.call("decode_mla_attention", q_c=q_c, q_pe=q[:, :, nope:], cache=cache,
                   tables=torch.tensor([[2, 0, 1]], dtype=I32), lens=torch.tensor([n], dtype=I32),
                   cache_scale=None, out=o, scale=0.2, seqs=1, heads=heads, latent=latent,
                   rope=rope, block_size=3, blocks=3, max_blocks=3,
                   pe_stride=heads * (nope + rope), pe_head=nope + rope)
        TWINS.call("decode_bmm", x=o, w=w_uv, out=out, tokens=1, heads=heads, n=dim_v, k=latent,
                   x_stride=heads * latent, x_head=latent)
        rows = f64(cache[[2, 0, 1]].flatten(0, 1))
        kv = torch.einsum("lc,hdc->lhd", rows[:, :latent], f64(kv_b))
        k = torch.cat((kv[..., :nope], rows[:, None, latent:].expand(-1, heads, -1)), -1)
        want = self.reference(f64(q[0]), k, kv[..., nope:], 0.2, None, 0)
        # Three results are rounded to bf16 on the way.
        self.assertLess((f64(out[0]) - want).abs().max().item(), 0.02 * want.abs().max().item())


class Gemm(Case):
    def test_gemm(self):
        for tokens, n, k, gap in ((1, 1, 1, 0), (3, 17, 40, 0), (9, 8, 33, 5)):
            for bias in (None, rand(n)):
                for flags, dtype in ((0, BF16), (F32_FLAG, torch.float32)):
                    x, w = rand(tokens, k + gap), rand(n, k)
                    out = torch.zeros(tokens, n, dtype=dtype)
                    TWINS.call("decode_gemm", x=x, w=w, bias=bias, out=out, tokens=tokens, n=n,
                               k=k, x_stride=k + gap, flags=flags)
                    want = F.linear(f64(x[:, :k]), f64(w), f64(bias) if bias is not None else None)
                    self.near(out, want, 1)
                    if flags:
                        self.assertLess((f64(out) - want).abs().max().item(), 1e-5)

    def test_bmm(self):
        x, w = rand(4, 3, 20), rand(3, 17, 9)
        out = torch.zeros(4, 3, 9, dtype=BF16)
        TWINS.call("decode_bmm", x=x, w=w, out=out, tokens=4, heads=3, n=9, k=17, x_stride=60,
                   x_head=20)
        self.near(out, torch.einsum("thk,hkn->thn", f64(x[..., :17]), f64(w)), 1)


if __name__ == "__main__":
    TWINS = Twins(sys.argv.pop(1))
    unittest.main()
