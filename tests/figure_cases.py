"""Levelled diagrams of the whole catalogue for the tests of figures: each line alone, and in larger regions."""

from __future__ import annotations

from importlib import resources

from ioweave.hierarchy.levelled import Levelled, Region
from ioweave.hierarchy.notation import parse_levelled
from ioweave.render.figure.from_counts import pair_spec
from ioweave.render.figure.spec import FigureSpec

# for each file: options of the block of each line alone, and blocks of several lines with their options
TILES: dict[str, tuple[dict[str, str], dict[str, str]]] = {
    "attention": (
        {"S": "group={q: 128}, stream={x: 64}", "P": "group={q: 1}", "O": "group={q: 128}, stream={x: 64}"},
        {"S P O": "group={q: 128}, stream={x: 64}"},
    ),
    "causal_attention": (
        {"S": "group={q: 128}, stream={x: 64}", "P": "group={q: 8}", "O": "group={q: 128}, stream={x: 64}"},
        {"S P O": "group={q: 128}, stream={x: 64}"},
    ),
    "column_sums": (
        {"S": "group={q: 128}, stream={x: 64}", "P": "group={q: 4}", "C": "group={x: 64}, stream={q: 16}"},
        {"S P": "group={q: 16}", "C": "group={x: 64}, stream={q: 16}"},
    ),
    "convolution": ({"Y": "group={b: 1}"}, {"Y": "group={b: 1, y: 8, o: 64}, stream={c: 32}"}),
    "cross_entropy": (
        {"Z": "group={t: 128, v: 128}, stream={m: 32}", "L": "group={t: 1}, stream={v: 4096}"},
        {"Z L": "group={t: 16}, stream={v: 16}"},
    ),
    "gpt3_block": (
        {
            "Q": "group={q: 128, h: 1}, stream={m: 32}",
            "K": "group={x: 128, h: 1}, stream={m: 32}",
            "V": "group={x: 128, h: 1}, stream={m: 32}",
            "S": "group={h: 1, q: 128}, stream={x: 64}",
            "P": "group={h: 1, q: 8}",
            "A": "group={h: 1, q: 128}, stream={x: 64}",
            "Z": "group={q: 128, m': 128}, stream={d': 32, h: 1}",
            "F": "group={q: 128, f: 128}, stream={m': 32}",
            "Y": "group={q: 128, m'': 128}, stream={f: 32}",
        },
        {
            "Q": "group={q: 128, h: 1}, stream={m: 32}",
            "K": "group={x: 128, h: 1}, stream={m: 32}",
            "V": "group={x: 128, h: 1}, stream={m: 32}",
            "S P A": "group={h: 1, q: 128}, stream={x: 64}",
            "Z": "group={q: 128}, stream={h: 1}",
            "F Y": "group={q: 8}, stream={f: 4}",
        },
    ),
    "grouped_query_attention": (
        {
            "S": "group={k: 1, q: 64}, stream={x: 64}",
            "P": "group={k: 1, g: 1, q: 2}",
            "O": "group={k: 1, q: 64}, stream={x: 64}",
        },
        {"S P O": "group={k: 1, q: 64}, stream={x: 64}"},
    ),
    "layernorm": (
        {"M": "group={t: 64}, stream={m: 64}", "R": "group={t: 64}, stream={m: 64}", "Y": "group={t: 4}"},
        {"M R Y": "group={t: 4}"},
    ),
    "matmul": ({"Z": "group={a: 128, c: 128}, stream={b: 32}"}, {"Z": "group={a: 254, c: 254}, stream={b: 1}"}),
    "matmul_chain": (
        {"H": "group={t: 128, f: 128}, stream={i: 32}", "Y": "group={t: 128, o: 128}, stream={f: 32}"},
        {"H Y": "group={t: 32}, stream={f: 4}"},
    ),
    "multi_head_attention": (
        {
            "S": "group={h: 1, q: 128}, stream={x: 64}",
            "P": "group={h: 1, q: 2}",
            "O": "group={h: 1, q: 128}, stream={x: 64}",
        },
        {"S P O": "group={h: 1, q: 128}, stream={x: 64}"},
    ),
    "rmsnorm_matmul": (
        {
            "R": "group={t: 64}, stream={m: 64}",
            "N": "group={t: 4}",
            "Y": "group={t: 128, n: 128}, stream={m: 32}",
        },
        {"R N Y": "group={t: 64, n: 128}, stream={m: 32}"},
    ),
    "spherical_attention": (
        {
            "S": "group={q: 128}, stream={x: 64}",
            "N": "group={q: 64}, stream={x: 64}",
            "O": "group={q: 128}, stream={x: 64}",
        },
        {"S N O": "group={q: 128}, stream={x: 64}"},
    ),
    "swiglu_mlp": (
        {
            "A": "group={t: 128, f: 128}, stream={m: 32}",
            "B": "group={t: 128, f: 128}, stream={m: 32}",
            "H": "group={t: 4}, stream={f: 64}",
            "Y": "group={t: 128, m': 128}, stream={f: 32}",
        },
        {"A B H": "group={t: 64, f: 64}, stream={m: 32}", "Y": "group={t: 128, m': 128}, stream={f: 32}"},
    ),
}


def source(name: str) -> str:
    """The text of a catalogue file."""
    return (resources.files("ioweave.diagrams") / "catalogue" / f"{name}.weave").read_text("utf-8")


def levelled(name: str, blocks: dict[str, str]) -> Levelled:
    """A catalogue file with its lines in blocks: names of lines (in order) to the block's options."""
    of = {line: (names.split()[0], options) for names, options in blocks.items() for line in names.split()}
    out: list[str] = []
    for text in source(name).splitlines():
        made = text.split("[")[0].strip()
        if " = " in text and made in of and "[" in text.split("=")[0]:
            first, options = of[made]
            if made == first:
                out.append(f'with level("smem"{", " if options else ""}{options.replace(chr(39), "")}):')
            out.append(f"    {text}")
        else:
            out.append(text)
    return parse_levelled("\n".join(out) + "\n", f"{name}.weave")


def pair(name: str, accumulate: str = "same") -> FigureSpec:
    """The pair of a catalogue file at its default sizes."""
    before, after = (levelled(name, blocks) for blocks in TILES[name])
    return pair_spec(name, before, after, before.diagram.values(), accumulate)


# shapes that the catalogue does not have
OTHERS = {
    "a single value": "q = 16\nA[q]: fp16\nL = sum[q](A[q])\nM = L * 2\nB[q] = A[q] / M\n",
    "one sum": "q = 16\nA[q]: fp16\nL = sum[q](A[q])\n",
    "a softmax of a vector": "x = 16\nA[x]: fp32\nB[x]: fp32\nP[x] = softmax[x](A[x])\nD = sum[x](P[x] * B[x])\n"
    "N[x] = B[x] / D\n",
    "one array read twice": "q, d = 8, 4\nx = q\nX[q, d]: fp16\nS[q, x] = sum[d](X[q, d] * X[x, d])\n"
    "P[q, x] = softmax[x](S[q, x])\nO[q, d] = sum[x](P[q, x] * X[x, d])\n",
    "shifted and fixed reads": "i = 16\nX[i]: fp16\nY[i] = where(i > 0, X[i] - X[i - 1], X[i])\nZ[i] = Y[i] * X[0]\n",
    "two fixed reads": "q, d = 16, 8\nX[q, d]: fp16\nY[q, d] = X[q, d] * cos(q / 10000 ** (d / 32))\n"
    "Z[q] = Y[q, 0] + Y[q, 1]\n",
    "further outputs": "q, x, d = 64, 64, 8\nQ[q, d]: fp16\nK[x, d]: fp16\n"
    "S[q, x] = sum[d](Q[q, d] * K[x, d]) / sqrt(d)\n"
    "P[q, x] = softmax[x](S[q, x])\nout(S)\nT[x, q] = exp(P[q, x])\nout(P)\n",
    "two outputs": "q, x, d = 64, 64, 8\nQ[q, d]: fp16\nK[x, d]: fp16\n"
    "S[q, x] = sum[d](Q[q, d] * K[x, d]) / sqrt(d)\n"
    "P[q, x] = softmax[x](S[q, x])\nR[q] = sum[x](P[q, x] * P[q, x])\nout(S)\nout(R)\n",
    "long names": "batch, query, key, chan, channel_out = 2, 8, 8, 4, 6\nQueries[batch, query, chan]: fp16\n"
    "Keys[batch, key, chan]: fp16\nValues[batch, key, channel_out]: fp16\n"
    "Scores[batch, query, key] = sum[chan](Queries[batch, query, chan] * Keys[batch, key, chan]) / sqrt(chan)\n"
    "Probs[batch, query, key] = softmax[key](Scores[batch, query, key])\n"
    "Result[batch, query, channel_out] = sum[key](Probs[batch, query, key] * Values[batch, key, channel_out])\n",
    "names of several words": "tokens, hidden, vocabs = 16, 8, 32\nhidden_states[tokens, hidden]: fp16\n"
    "unembedding_matrix[vocabs, hidden]: fp16\n"
    "logits_before_softmax[tokens, vocabs] = "
    "sum[hidden](hidden_states[tokens, hidden] * unembedding_matrix[vocabs, hidden])\n"
    "log_probabilities[tokens, vocabs] = "
    "logits_before_softmax[tokens, vocabs] - logsumexp[vocabs](logits_before_softmax[tokens, vocabs])\n",
    "norms and residuals": "n, m = 8, 8\nX[n, m]: fp16\nW[m]: fp32\nY[n, m] = rmsnorm[m](X[n, m]) * W[m]\n"
    "Z[n, m] = layernorm[m](Y[n, m])\nU[n] = max[m](Z[n, m])\nV[n, m] = max(Z[n, m], U[n])\n"
    "T[n, m] = X[n, m] + V[n, m]\n",
    "a chain of maps": "t, m = 8, 8\nX[t, m]: fp16\nA[t, m] = exp(X[t, m])\nB[t, m] = A[t, m] * 2 + 0.00001\n"
    "C[t, m] = sqrt(abs(B[t, m])) / 3\nD[t, m] = C[t, m] - X[t, m]\nE[t, m] = max(D[t, m], A[t, m])\n",
    "a transpose of four axes": "a, b, c, d = 3, 4, 5, 6\nX[a, b, c, d]: fp16\nY[d, c, b, a] = X[a, b, c, d]\n"
    "Z[b, d] = sum[a, c](Y[d, c, b, a])\n",
    "a transpose and a residual": "a, b, c = 4, 8, 16\nX[a, b, c]: fp16\nY[c, a, b] = X[a, b, c]\n"
    "Z[b, a, c] = exp(Y[c, a, b]) + X[a, b, c]\n",
    "three factors": "a, b, c, d = 3, 4, 5, 6\nX[a, d]: fp16\nY[b, d]: fp16\nZ[c, d]: fp16\n"
    "T[a, b, c] = sum[d](X[a, d] * Y[b, d] * Z[c, d])\n",
    "four factors": "a, b, c, d, e = 3, 4, 5, 6, 7\nW[a, b]: fp16\nX[b, c]: fp16\nY[c, d]: fp16\nZ[d, e]: fp16\n"
    "T[a, e] = sum[b, c, d](W[a, b] * X[b, c] * Y[c, d] * Z[d, e])\n",
    "an outer product": "a, b, c = 4, 5, 6\nX[a]: fp16\nY[b]: fp16\nZ[c]: fp16\n"
    "T[a, b, c] = X[a] * Y[b] + Z[c]\nU[a, c] = max[b](T[a, b, c])\n",
    "a broadcast": "a, b = 5, 6\nX[a]: fp16\nY[a, b] = X[a] * b\n",
    "a window": "i, k = 16, 3\nX[i + k - 1]: fp16\nW[k]: fp16\nY[i] = sum[k](X[i + k] * W[k])\nZ[i] = relu(Y[i])\n",
    "a stride": "b, y, x, r, s, c, o = 2, 4, 4, 3, 3, 2, 2\nX[b, 2 * y + r - 2, 2 * x + s - 2, c]: fp16\n"
    "W[r, s, c, o]: fp16\nY[b, y, x, o] = sum[r, s, c](X[b, 2 * y + r, 2 * x + s, c] * W[r, s, c, o])\n"
    "M[b, o] = max[y, x](Y[b, y, x, o])\n",
    "a local mask": "q, x, d, w = 16, 16, 4, 3\nQ[q, d]: fp16\nK[x, d]: fp16\nV[x, d]: fp16\n"
    "S[q, x] = where(x <= q and q - x < w, sum[d](Q[q, d] * K[x, d]) / sqrt(d), -inf)\n"
    "P[q, x] = softmax[x](S[q, x])\nO[q, d] = sum[x](P[q, x] * V[x, d])\n",
    "labels of integers": "t, v = 8, 16\nZ[t, v]: fp16\nlabel[t]: int32\n"
    "L[t] = logsumexp[v](Z[t, v]) - sum[v](where(v == label[t], Z[t, v], 0))\nT = sum[t](L[t]) / t\n",
    "arrays of five axes": "b, h, g, q, x, d, e = 2, 4, 2, 8, 8, 4, 4\nQ[b, h, g, q, d]: fp16\nK[b, h, x, d]: fp16\n"
    "V[b, h, x, e]: fp16\nB[h, g, q, x]: fp16\n"
    "S[b, h, g, q, x] = sum[d](Q[b, h, g, q, d] * K[b, h, x, d]) / sqrt(d) + B[h, g, q, x]\n"
    "P[b, h, g, q, x] = softmax[x](S[b, h, g, q, x])\n"
    "O[b, h, g, q, e] = sum[x](P[b, h, g, q, x] * V[b, h, x, e])\n",
    "twelve kernels": "t, m = 8, 8\nX[t, m]: fp16\nA1[t, m] = exp(X[t, m])\n"
    + "".join(f"A{k + 1}[t, m] = exp(A{k}[t, m]) + X[t, m]\n" for k in range(1, 12)),
    "a gated block": "t, m, f = 8, 8, 8\nX[t, m]: fp16\nG[m]: fp16\nU[m, f]: fp16\nV[m, f]: fp16\nW[m, f]: fp16\n"
    "A[t] = mean[m](X[t, m] ** 2)\nB[t, m] = X[t, m] * rsqrt(A[t] + 0.00001)\nC[t, m] = B[t, m] * G[m]\n"
    "D[t, f] = sum[m](C[t, m] * U[m, f])\nE[t, f] = sum[m](C[t, m] * V[m, f])\nF[t, f] = silu(D[t, f]) * E[t, f]\n"
    "H[t, m] = sum[f](F[t, f] * W[m, f])\nI[t, m] = H[t, m] + X[t, m]\nJ[t, m] = layernorm[m](I[t, m])\n"
    "K[t] = max[m](J[t, m])\nL[t, m] = exp(J[t, m] - K[t])\nN[t] = sum[m](L[t, m])\n",
    "a recurrence": "t, d, e = 16, 4, 6\ngamma = 0.5\nQ[t, d]: fp16\nK[t, d]: fp16\nV[t, e]: fp16\n"
    "S[t, d, e] = scan[t](gamma * S[t - 1, d, e] + K[t, d] * V[t, e], start=0)\n"
    "O[t, e] = sum[d](Q[t, d] * S[t, d, e])\n",
    "a backward recurrence": "i, j = 6, 8\nB[i, j]: fp32\nV[j]: fp32\n"
    "L[i, j] = scan[j, reversed=True](L[i, j + 1] * (1 - B[i, j]), start=1)\nO[i] = sum[j](L[i, j] * V[j])\n",
    "a recurrence of one value": "t = 16\nX[t]: fp32\nY[t] = scan[t](0.5 * Y[t - 1] + X[t], start=0)\n"
    "Z[t] = exp(Y[t])\n",
    "a sum in each step": "t, d, e = 16, 4, 6\nK[t, d]: fp32\nV[t, e]: fp32\nB[t]: fp32\n"
    "S[t, d, e] = scan[t](S[t - 1, d, e] + B[t] * K[t, d] * (V[t, e] - sum[d](K[t, d] * S[t - 1, d, e])), start=0)\n"
    "O[e] = sum[t, d](K[t, d] * S[t, d, e])\n",
    "earlier elements in each step": "j, e = 8, 4\nc = j\nW[j, c]: fp32\nV[j, e]: fp32\n"
    "U[j, e] = scan[j](V[j, e] - sum[c](where(c < j, W[j, c] * U[c, e], 0)), start=0)\n",
    "running sums": "i, j = 8, 8\nF[i]: fp32\nG[j]: fp32\nA[i] = cumsum[i](log(F[i]))\n"
    "C[j] = cumsum[j, reversed=True](G[j])\nS[i, j] = A[i] - C[j]\n",
    "a list": "q, x, d, k = 8, 32, 4, 3\nQ[q, d]: fp16\nK[x, d]: fp16\nS[q, x] = sum[d](Q[q, d] * K[x, d])\n"
    "T[q, k] = topk[x](S[q, x], into=k)\nout(T)\nI[q, k] = argtopk[x](S[q, x], into=k)\n",
    "a gather": "t, v, m = 8, 32, 4\nE[v, m]: fp16\ntoken[t]: int32\nY[t, m] = E[token[t], m] * 2\n",
    "pages": "h, x, d, p = 4, 32, 8, 4\nu = x // p\nn = 16\nQ[h, d]: fp16\nK[n, p, d]: fp16\nV[n, p, d]: fp16\n"
    "page[u]: int32\nS[h, x] = sum[d](Q[h, d] * K[page[x // p], x % p, d])\nP[h, x] = softmax[x](S[h, x])\n"
    "O[h, d] = sum[x](P[h, x] * V[page[x // p], x % p, d])\n",
    "a gather at a gather": "i, n, m, d = 8, 16, 12, 4\nX[n, d]: fp16\nf[m]: int32\ng[i]: int32\n"
    "Y[i, d] = X[f[g[i]], d] + X[g[i], d]\n",
    "a gather at a shift": "q, x, n = 8, 8, 5\nS[q, x]: fp16\nB[n]: fp32\nb[q + x - 1]: int32\n"
    "T[q, x] = S[q, x] + B[b[q - x + size(x) - 1]]\n",
    "a sum in a sum": "q, x, g, m = 8, 8, 3, 4\nW[q, g]: fp32\nQ[q, g, m]: fp16\nK[x, m]: fp16\n"
    "I[q, x] = sum[g](W[q, g] * relu(sum[m](Q[q, g, m] * K[x, m])))\n",
    "a dropout": "q, x, d = 8, 8, 4\nS[q, x]: fp16\nV[x, d]: fp16\nP[q, x] = softmax[x](S[q, x])\n"
    "D[q, x] = P[q, x] * keep(q, x, p=0.1) / 0.9\nO[q, d] = sum[x](D[q, x] * V[x, d])\n",
    "a factor after a function": "q, x, d = 8, 8, 4\nQ[q, d]: fp16\nK[x, d]: fp16\n"
    "S[x, q] = relu(sum[d](Q[q, d] * K[x, d]) / sqrt(d)) / 3\n",
    "a merge": "q, x, d = 4, 8, 3\nQ[q, d]: fp16\nK[x, d]: fp16\nV[x, d]: fp16\n"
    'with level("smem", group={q: 2, x: 4}):\n    S[q, x] = sum[d](Q[q, d] * K[x, d])\n'
    "    P[q, x] = softmax[x](S[q, x])\n    O[q, d] = sum[x](P[q, x] * V[x, d])\n",
}

# a stream for the one plate that holds all lines of some of them
STREAMS = {
    "one array read twice": "x",
    "two outputs": "x",
    "long names": "key",
    "a local mask": "x",
    "labels of integers": "t",
    "arrays of five axes": "x",
    "norms and residuals": "n",
    "a gated block": "t",
    "one sum": "q",
    "a softmax of a vector": "x",
    "four factors": "c",
    "a recurrence": "t",
    "a backward recurrence": "j",
    "a list": "x",
    "pages": "x",
    "a gather": "t",
    "a dropout": "x",
}


def other_pair(name: str) -> FigureSpec:
    """One of the `OTHERS` as it is written, beside all its lines in one region."""
    before, after = parse_levelled(OTHERS[name]), one_plate(name)
    return pair_spec(name, before, after, before.diagram.values(), "same")


def one_plate(name: str) -> Levelled:
    """All lines of one of the `OTHERS` in one region, streamed where `STREAMS` says so."""
    diagram = parse_levelled(OTHERS[name]).diagram
    lines = tuple(line.name for line in diagram.lines)
    axis = STREAMS.get(name)
    region = Region(lines[-1], "smem", lines, stream=((axis, 2),) if axis else ())
    return Levelled(diagram, (region,))
