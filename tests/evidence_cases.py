"""Programs whose least state is known by theory, and programs that no bounded state serves."""

from __future__ import annotations

from dataclasses import dataclass

from ioweave.derive.evidence import Question, weigh
from ioweave.derive.streaming.verdict import plan_axis, prove
from ioweave.diagrams.boxes import Opened
from ioweave.diagrams.diagram import Diagram
from ioweave.diagrams.notation import parse
from ioweave.diagrams.opening import open_diagram
from ioweave.hierarchy.verdicts import Verdict

QKV = (
    "q, x, d, e = 32, 4096, 16, 24\nQ[q, d]: fp32\nK[x, d]: fp32\nV[x, e]: fp32\nS[q, x] = sum[d](Q[q, d] * K[x, d])\n"
)
ROWS = "q, x, e = 32, 4096, 24\nS[q, x]: fp32\nV[x, e]: fp32\n"
ROW = "x = 4096\nX[x]: fp32\n"
STATE = "t, d, e = 4096, 16, 24\nq[t, d]: fp32\nk[t, d]: fp32\nv[t, e]: fp32\na[t]: fp32\nb[t]: fp32\n"

# name -> text, axis, least state in the measure of state_values, and where the number comes from
KNOWN = {
    "attention": (QKV + "O[q, e] = sum[x](softmax[x](S[q, x]) * V[x, e])", "x", 25),  # l and o up to a scale: e + 1
    "causal attention": (
        QKV + "O[q, e] = sum[x](softmax[x](where(x <= q, S[q, x], -inf)) * V[x, e])",
        "x",
        25,
    ),
    "sigmoid attention": (QKV + "O[q, e] = sum[x](sigmoid(S[q, x]) * V[x, e])", "x", 1),  # o alone, one per channel
    "weights and their squares": (
        ROWS + "P[q, x] = softmax[x](S[q, x])\nN[q] = sum[x](P[q, x]**2)\nO[q, e] = sum[x](P[q, x] * V[x, e])\nout(N)",
        "x",
        26,  # l, the sum of squares, o
    ),
    "cubes of weights": (
        ROWS + "P[q, x] = softmax[x](S[q, x])\nO[q, e] = sum[x](P[q, x]**3 * V[x, e])",
        "x",
        25,
    ),
    "two softmaxes over one value": (
        ROWS + "T[q, x]: fp32\nO[q, e] = sum[x]((softmax[x](S[q, x]) - 0.5 * softmax[x](T[q, x])) * V[x, e])",
        "x",
        50,  # l and o of each
    ),
    "log-sum-exp": (ROWS.replace("V[x, e]: fp32\n", "") + "L[q] = logsumexp[x](S[q, x])", "x", 1),
    "entropy": (
        ROWS.replace("V[x, e]: fp32\n", "") + "P[q, x] = softmax[x](S[q, x])\nH[q] = -sum[x](P[q, x] * log(P[q, x]))",
        "x",
        2,  # the log-sum-exp, and the mean score
    ),
    "normalised by absolute values": (
        ROWS + "N[q] = sum[x](abs(S[q, x]))\nO[q, e] = sum[x](S[q, x] * V[x, e]) / N[q]",
        "x",
        25,
    ),
    "matmul": ("i, j, k = 8, 16, 4096\nA[i, k]: fp32\nB[k, j]: fp32\nC[i, j] = sum[k](A[i, k] * B[k, j])", "k", 1),
    "matmul of a normalised row": (
        "i, j, k = 8, 16, 4096\nA[i, k]: fp32\nB[k, j]: fp32\nR[i] = sum[k](A[i, k]**2)\n"
        "C[i, j] = sum[k](A[i, k] / sqrt(R[i]) * B[k, j])",
        "k",
        17,  # the sum of squares and a row of C
    ),
    "a matmul that is normalised after it": (
        "i, j, k = 8, 16, 4096\nA[i, k]: fp32\nB[k, j]: fp32\nC[i, j] = sum[k](A[i, k] * B[k, j])\n"
        "Y[i, j] = C[i, j] / sqrt(sum[j](C[i, j]**2))",
        "k",
        1,
    ),
    "an elementwise map": (ROW + "Y[x] = exp(X[x])", "x", 0),  # nothing to keep
    "a window": ("i, r = 4096, 3\nX[i + r - 1]: fp32\nY[i] = sum[r](X[i + r])", "i", 0),  # the halo is read again
    "sum": (ROW + "Y = sum[x](X[x])", "x", 1),
    "maximum": (ROW + "Y = max[x](X[x])", "x", 1),
    "range": (ROW + "Y = max[x](X[x]) - min[x](X[x])", "x", 2),
    "product": ("x = 4096\nX[x]: fp32 > 0\nY = prod[x](X[x])", "x", 1),
    "mean and variance": (ROW + "M = mean[x](X[x])\nR = mean[x]((X[x] - M)**2)\nout(M)", "x", 2),
    "variance alone": (ROW + "M = mean[x](X[x])\nR = mean[x]((X[x] - M)**2)", "x", 2),
    "kurtosis": (
        ROW + "M = mean[x](X[x])\nR = mean[x]((X[x] - M)**2)\nK = mean[x]((X[x] - M)**4) / R**2",
        "x",
        4,  # four power sums
    ),
    "cosine similarity": (
        "x = 4096\nX[x]: fp32\nY[x]: fp32\nC = sum[x](X[x] * Y[x]) / sqrt(sum[x](X[x]**2) * sum[x](Y[x]**2))",
        "x",
        3,
    ),
    "one step of a linear fit": (
        "x = 4096\nX[x]: fp32\nY[x]: fp32\nC = sum[x](X[x] * Y[x]) / sum[x](X[x]**2)",
        "x",
        2,
    ),
    "loss with a label": (
        "t, v = 8, 4096\nZ[t, v]: fp32\nlabel[t]: int32\nL[t] = logsumexp[v](Z[t, v])\n"
        "G[t] = sum[v](where(v == label[t], Z[t, v], 0))\nY[t] = L[t] - G[t]",
        "v",
        2,  # the log-sum-exp and the label's logit
    ),
    "list of the largest": (
        "q, x, k = 8, 4096, 5\nS[q, x]: fp32\nT[q, k] = topk[x](S[q, x], into=k)",
        "x",
        5,
    ),
    "decayed sum": ("t = 4096\nX[t]: fp32\na[t]: fp32\nY[t] = scan[t](a[t] * Y[t - 1] + X[t], start=0)", "t", 1),
    "a recurrence that runs back": (
        "t = 4096\nX[t]: fp32\na[t]: fp32\nY[t] = scan[t, reversed=True](a[t] * Y[t + 1] + X[t], start=0)",
        "t",
        1,
    ),
    "a recurrence that is not affine": ("t = 4096\nX[t]: fp32\nY[t] = scan[t](tanh(Y[t - 1] + X[t]), start=0)", "t", 1),
    "gated state of keys and values": (
        STATE.replace("b[t]: fp32\n", "") + "A[t, d, e] = scan[t](a[t] * A[t - 1, d, e] + k[t, d] * v[t, e], start=0)\n"
        "O[t, e] = sum[d](q[t, d] * A[t, d, e])",
        "t",
        1,  # of the d * e values that all share
    ),
    "delta rule": (
        "f = d\n"
        + STATE.replace("a[t]: fp32\n", "")
        + "A[t, d, e] = scan[t](A[t - 1, d, e] + b[t] * k[t, d] * (v[t, e] - sum[f](k[t, f] * A[t - 1, f, e])), "
        "start=0)\n"
        "O[t, e] = sum[d](q[t, d] * A[t, d, e])",
        "t",
        1,
    ),
    "paged keys": (
        "n, x, p, d, q = 64, 1024, 16, 16, 8\nQ[q, d]: fp32\nK[n, p, d]: fp32\nV[n, p, d]: fp32\npage[x // p]: int32\n"
        "S[q, x] = sum[d](Q[q, d] * K[page[x // p], x % p, d])\n"
        "O[q, d] = sum[x](softmax[x](S[q, x]) * V[page[x // p], x % p, d])",
        "x",
        17,
    ),
    "all pairs of channels": (
        "x, d, e, f = 4096, 6, 5, 3\nX[x, d]: fp32\nY[x, e]: fp32\nW[d, e, f]: fp32\n"
        "C[d, e] = sum[x](X[x, d] * Y[x, e])\nZ = sum[d, e](exp(C[d, e]))",
        "x",
        1,
    ),
}

# no state of bounded size: the rank grows with the prefix
UNBOUNDED = {
    "sorted": ("x = 4096\nk = x\nX[x]: fp32\nT[k] = topk[x](X[x], into=k)", "x"),
    "median": ("x = 4096\nk = x // 2 + 1\nX[x]: fp32\nT[k] = topk[x](X[x], into=k)\nM = min[k](T[k])", "x"),
    "sparsemax": (
        "q, x = 8, 4096\nk = x\nS[q, x]: fp32\nV[x]: fp32\nT[q, k] = topk[x](S[q, x], into=k)\n"
        "C[q, k] = cumsum[k](T[q, k])\nN[q] = sum[k](where(1 + (k + 1) * T[q, k] > C[q, k], 1, 0))\n"
        "B[q] = sum[k](where(1 + (k + 1) * T[q, k] > C[q, k], T[q, k], 0))\n"
        "O[q] = sum[x](max(S[q, x] - (B[q] - 1) / N[q], 0) * V[x])",
        "x",
    ),
    "outputs that feed later keys": (
        "j, e = 4096, 4\nt = j\nV[j, e]: fp32\nW[j, t]: fp32\n"
        "U[j, e] = scan[j](V[j, e] - sum[t](where(t < j, W[j, t] * U[t, e], 0)), start=0)",
        "j",
    ),
}

# more passes: no bounded state serves one
REFUSED = {
    "softmax of softmax": (
        QKV + "R[q, x] = softmax[x](softmax[x](S[q, x]))\nO[q, e] = sum[x](R[q, x] * V[x, e])",
        "x",
    ),
    "tanh of weights": (QKV + "O[q, e] = sum[x](tanh(softmax[x](S[q, x])) * V[x, e])", "x"),
    "row, then column normaliser": (
        QKV + "A[q, x] = softmax[x](S[q, x])\nB[q, x] = A[q, x] / sum[q](A[q, x])\nO[q, e] = sum[x](B[q, x] * V[x, e])",
        "x",
    ),
    "rounding under a late maximum": (
        "t, k, n = 4, 4096, 3\nX[t, k]: fp32\nW[k, n]: fp32\nA[t] = max[k](abs(X[t, k]))\n"
        "Y[t, n] = sum[k](round(X[t, k] * 127 / A[t]) * W[k, n]) * A[t] / 127",
        "k",
    ),
}

# an output along the axis that a later step changes
LATE = {
    "column sums": (QKV.replace("V[x, e]: fp32\n", "") + "P[q, x] = softmax[x](S[q, x])\nC[x] = sum[q](P[q, x])", "x"),
    "causal column sums": (
        "q, x = 64, 64\nS[q, x]: fp32\nP[q, x] = softmax[x](where(x <= q, S[q, x], -inf))\nC[x] = sum[q](P[q, x])",
        "x",
    ),
    "layer norm": ("t, x = 8, 64\nX[t, x]: fp32\nY[t, x] = layernorm[x](X[t, x])", "x"),
}


@dataclass(frozen=True)
class Asked:
    """A program, its axis, the verdict before evidence, and the question that evidence answers."""

    diagram: Diagram
    opened: Opened
    verdict: Verdict
    question: Question

    @property
    def weighed(self) -> Verdict:
        """The verdict with its evidence."""
        return weigh(self.verdict, self.question)


def ask(text: str, axis: str) -> Asked:
    """The prover's verdict on a program, and the question for evidence."""
    diagram = parse(text)
    opened = open_diagram(diagram)
    values = diagram.values()
    plan = plan_axis(opened, axis, values)
    verdict = prove(opened, axis, values, definitions=diagram.definitions)
    backward = verdict.direction == "backward"
    question = Question(opened, plan, verdict.state, axis, values, diagram.definitions, (), backward)
    return Asked(diagram, opened, verdict, question)
