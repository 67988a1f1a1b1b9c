"""Every error is one line with its place and its repair."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ioweave.diagrams.errors import WeaveError
from ioweave.diagrams.library import names, source
from ioweave.hierarchy.notation import parse_levelled

HEAD = "q, x, d = 4, 8, 3\nQ[q, d]: fp16\nK[x, d]: fp16\n"
ONE = "a = 4\nX[a]: fp16\n"

ERRORS = [
    # text, line:column, parts of the message
    ("", "1:1", ["empty", "write inputs"]),
    (" \n\t\n", "1:1", ["empty"]),
    ("a\0b", "1:1", ["NUL"]),
    ('"""only a description"""', "1:1", ["nothing is computed"]),
    ("q = 4\n", "1:1", ["nothing is computed"]),
    (HEAD, "1:1", ["nothing is computed"]),
    # axes
    (HEAD + "S[q, z] = sum[d](Q[q, d])", "4:6", ["unknown axis `z`", "z = 64"]),
    (HEAD + "S[q] = sum[z](Q[q, d])", "4:12", ["unknown axis `z`"]),
    ("query = 4\nX[query]: fp16\nY[quer] = X[quer]", "3:3", ["unknown axis `quer`", "did you mean `query`"]),
    (HEAD + "S[q] = Q[q, d]", "4:13", ["neither on the left side nor reduced", "sum[d](...)", "S[q, d]"]),
    (HEAD + "S[q] = Q[q, d + 1]", "4:13", ["neither on the left side nor reduced", "size(d)"]),
    (HEAD + "S[q] = sum[x](K[x, d])\nT[d] = S[0] * K[0, d]", "4:20", ["`d` is neither", "sum[d](...)"]),
    (HEAD + "S[q, d] = softmax[x](Q[q, d])", "4:11", ["keeps its axis `x`", "S[q, d, x]", "sum[x]"]),
    (HEAD + "A[q, q] = Q[q, 0]", "4:6", ["twice on the left", "q_1 = q"]),
    (HEAD + "A[q, 1] = Q[q, 0]", "4:6", ["names axes only"]),
    (HEAD + "A[q + 1] = Q[q, 0]", "4:3", ["names axes only"]),
    (HEAD + "A[q] = sum[d, d](Q[q, d])", "4:15", ["stands twice"]),
    (HEAD + "A[q] = sum[2](Q[q, 0])", "4:12", ["names axes"]),
    (HEAD + "A[q] = sum[K](Q[q, 0])", "4:12", ["`K` is an array, not an axis"]),
    ("X[a]: fp16\nY[a] = X[a]", "1:3", ["unknown axis `a`", "a = 64"]),
    # ranks and ranges
    (HEAD + "S[q] = sum[d](Q[q])", "4:15", ["2 axes [q, d] but 1 index", "Q[q, d]"]),
    (HEAD + "S[q] = Q", "4:8", ["2 axes", "Q[q, d]"]),
    (HEAD + "S[x, d] = Q[x, d]", "4:13", ["size conflict", "`x` has 8", "has 4", "x = q"]),
    (HEAD + "S[q, d] = Q[q + 1, d]", "4:13", ["out of range", "reaches 4", "0 to 3", "where(q + 1 < size(q)"]),
    (HEAD + "S[q, d] = where(q >= 1, Q[q - 2, d], 0)", "4:27", ["out of range", "reaches -2"]),
    (ONE + "Y[a] = X[5]", "3:10", ["out of range"]),
    # indices
    (HEAD + "S[q, d] = Q[q * d, d]", "4:13", ["out of range", "`q * d` may reach 6", "0 to 3"]),
    (HEAD + "S[q, d] = Q[4 + q // 2, d]", "4:13", ["out of range", "`q // 2 + 4` may reach 5"]),
    (HEAD + "S[q, d] = Q[q % 8 - 1, d]", "4:13", ["out of range", "may reach -1", "where(q % 8 - 1 >= 0"]),
    (HEAD + "S[q, d] = Q[q ** 2, d]", "4:13", ["power of the index `q`"]),
    (HEAD + "S[q, d] = Q[q / 2, d]", "4:13", ["`/` gives no whole number", "`//`"]),
    (HEAD + "S[q, d] = Q[Q[q, d], d]", "4:13", ["`Q` does not hold whole numbers", "int32", "floor(Q[...])"]),
    (HEAD + "W: fp32\nS[q, d] = Q[W, d]", "5:13", ["`W` does not hold whole numbers"]),
    (HEAD + "S[q, d] = Q[sqrt(q + 1), d]", "4:13", ["whole number", "floor(...)"]),
    (HEAD + "S[q, d] = Q[q < 1, d]", "4:13", ["truth value"]),
    (HEAD + "S[q, d] = Q[1:2, d]", "4:13", ["slice"]),
    (HEAD + "S[q, d] = Q[1.5, d]", "4:13", ["whole number"]),
    (HEAD + "S[q, d] = Q[z, d]", "4:13", ["unknown axis `z`"]),
    (HEAD + "e = 0.5\nS[q, d] = Q[e, d]", "5:13", ["whole number"]),
    # operators
    (HEAD + "S[q, d] = softmx[d](Q[q, d])", "4:11", ["unknown operator `softmx`", "did you mean `softmax`"]),
    (HEAD + "S[q, d] = epx(Q[q, d])", "4:11", ["unknown operator `epx`", "did you mean `exp`"]),
    (HEAD + "S[q, d] = np.exp(Q[q, d])", "4:11", ["unknown operator `np.exp`"]),
    (HEAD + "S[q, d] = exp[d](Q[q, d])", "4:11", ["takes no axes"]),
    (HEAD + "S[q] = sum(Q[q, 0])", "4:8", ["needs the axes", "sum[x]"]),
    (HEAD + "S[q] = softmax[q]", "4:8", ["needs its argument"]),
    (HEAD + "S[q] = Q[q, 0] + exp", "4:18", ["needs its argument"]),
    (HEAD + "S[q, d] = Q(q, d)", "4:11", ["is an array, not a function"]),
    (ONE + "Y[a] = exp(X[a], X[a])", "3:8", ["takes 1 argument, not 2"]),
    (ONE + "Y[a] = max(X[a])", "3:8", ["takes 2 arguments", "max[x](...)"]),
    (ONE + "Y = sum[a](X[a], X[a])", "3:5", ["takes one argument"]),
    (ONE + "Y[a] = exp(X[a], base=2)", "3:18", ["no option `base`"]),
    (ONE + "Y = sum[a](X[a], wher=a > 1)", "3:18", ["no option `wher`", "where="]),
    (ONE + "Y[a] = rmsnorm[a](X[a], eps=1, eps=2)", "3:32", ["given twice"]),
    (ONE + "Y[a] = rmsnorm[a](X[a], epps=1)", "3:25", ["no option `epps`", "eps"]),
    (ONE + "Y[a] = rmsnorm[a](X[a], eps=X[a])", "3:25", ["number"]),
    (ONE + "Y[a] = softmax[a](X[a], where=a > 1)", "3:25", ["where(c, S[q, x], -inf)"]),
    (ONE + "Y[a] = size(X) + X[a]", "3:8", ["unknown axis `X`"]),
    (ONE + "Y[a] = size(1) + X[a]", "3:8", ["size(...) takes one axis"]),
    (ONE + "Y[a] = X[a] @ X[a]", "3:8", ["`@`", "sum[k]"]),
    (ONE + "Y[a] = X[a] ^ X[a]", "3:8", ["unknown operator", "X[a] ^ X[a]"]),
    (ONE + "Y[a] = X[a] if a else 1", "3:8", ["where(c, a, b)"]),
    (ONE + "Y[a] = X[a] in X[a]", "3:8", ["comparisons are"]),
    (ONE + "Y[a] = where(a > 1 & a < 2, X[a], 0)", "3:18", ["binds tighter", "(a < b) & (c < d)"]),
    # indices as values
    (HEAD + "S[q, d] = Q[q, d] / d", "4:11", ["divides by the index `d`", "size(d)"]),
    (HEAD + "S[q, d] = Q[q, d] // d", "4:11", ["size(d)"]),
    (HEAD + "S[q, d] = Q[q, d] / sqrt(d)", "4:21", ["root of the index `d`", "size(d)"]),
    (HEAD + "S[q, d] = log2(d) * Q[q, d]", "4:11", ["logarithm of the index `d`", "size(d)"]),
    (HEAD + "S[q, d] = d**2 * Q[q, d]", "4:11", ["power of the index `d`", "size(d)"]),
    # order
    (HEAD + "A[q, d] = B[q, d]\nB[q, d] = A[q, d]", "4:11", ["cyclic definition", "A reads B, B reads A"]),
    (HEAD + "A[q, d] = B[q, d]\nB[q, d] = Q[q, d]", "4:11", ["before its definition on line 5"]),
    (HEAD + "A[q, d] = A[q, d] + 1", "4:11", ["reads itself", "scan"]),
    ("a = 4\nY[a] = X[a]\nX[a]: fp16", "2:8", ["declared on line 3"]),
    (HEAD + "A[q, d] = Q[q, d]\nB[q, d] = Q[q, d]", "4:1", ["neither read nor an output", "out(A)", "delete"]),
    (HEAD + "Q[q, d] = K[q, d]", "4:1", ["already defined as an input on line 2"]),
    (HEAD + "q[x] = K[x, 0]", "4:1", ["already defined as a size"]),
    (HEAD + "S[q] = Qq[q, d]", "4:8", ["unknown array `Qq`", "did you mean `Q`"]),
    (HEAD + "S[q] = x[q]", "4:8", ["is a number, not an array"]),
    (HEAD + "S[q] = Q[q, 0] + zz", "4:18", ["unknown name `zz`"]),
    (HEAD + "A[q, d] = Q[q, d]\nout(B)", "5:5", ["no line", "one of A"]),
    (HEAD + "A[q, d] = Q[q, d]\nout(Q)", "5:5", ["an input"]),
    (HEAD + "A[q, d] = Q[q, d]\nout(A, A)", "5:8", ["twice"]),
    (HEAD + "A[q, d] = Q[q, d]\nout()", "5:1", ["out(S)"]),
    # sizes and constants
    ("a = b\nb = a\nX[a]: fp16\nY[a] = X[a]", "1:1", ["cyclic definition", "a = b = a"]),
    ("a = a + 1\nX[a]: fp16\nY[a] = X[a]", "1:1", ["cyclic definition"]),
    ("a = z\nX[a]: fp16\nY[a] = X[a]", "1:5", ["`z` has no value"]),
    ("a = 0\nX[a]: fp16\nY[a] = X[a]", "1:1", ["is 0", "1 or more"]),
    ("b, a = 4, -4\nX[a]: fp16\nY[a] = X[a]", "1:4", ["is -4", "1 or more"]),
    ("a = 4.5\nX[a]: fp16\nY[a] = X[a]", "1:1", ["4.5", "whole number"]),
    ("a = 2**41\nX[a]: fp16\nY[a] = X[a]", "1:1", ["beyond 2**40"]),
    ("a = 10**10**10\nX[a]: fp16\nY[a] = X[a]", "1:1", ["pow"]),
    ("a = 1" + "0" * 5000 + "\nX[a]: fp16\nY[a] = X[a]", "1:1", ["thousands of digits"]),
    ("a = 1" + "0" * 500 + "\nX[a]: fp16\nY[a] = X[a]", "1:5", ["64 bits"]),
    ("a = 4 / 0\nX[a]: fp16\nY[a] = X[a]", "1:1", ["divides by zero"]),
    ("a = sqrt(-1)\nX[a]: fp16\nY[a] = X[a]", "1:1", ["not a real number"]),
    ("a = (-2)**0.5\nX[a]: fp16\nY[a] = X[a]", "1:1", ["not real"]),
    ("a = foo(4)\nX[a]: fp16\nY[a] = X[a]", "1:5", ["unknown operator `foo`"]),
    ("inf = 4\nX[inf]: fp16\nY[inf] = X[inf]", "1:1", ["choose another name"]),
    ("a = b = 4\nX[a]: fp16\nY[a] = X[a]", "1:1", ["one name at a time"]),
    ("a, b = 4\nX[a]: fp16\nY[a] = X[a]", "1:1", ["2 names but 1 values"]),
    ("a.b = 4\nX[a]: fp16\nY[a] = X[a]", "1:1", ["plain name", "a_b"]),
    (ONE + "Y[a] = X[a] / 0", "3:8", ["divides by zero"]),
    (ONE + "c = 0\nY[a] = X[a] % c", "4:8", ["divides by zero"]),
    (ONE + "Y[a] = X[a] + 99999999999999999999", "3:15", ["64 bits"]),
    # declarations
    ("a = 4\nX[a]: fp17\nY[a] = X[a]", "2:7", ["unknown dtype `fp17`", "did you mean `fp16`"]),
    ("a = 4\nX[a]: fp16\nY[a]: float = X[a]", "3:7", ["unknown dtype `float`"]),
    ("a = 4\nX[a]: 'fp16'\nY[a] = X[a]", "2:7", ["a dtype"]),
    ("a = 4\nX[a]: fp16 > a\nY[a] = X[a]", "2:14", ["number"]),
    ("a = 4\nX[a]: fp16 > 0 > 1\nY[a] = X[a]", "2:7", ["one comparison"]),
    ("a = 4\nX[a]: fp16 > 0 = 3\nY[a] = X[a]", "2:7", ["not of a line"]),
    ("a = 4\nX[a - 5]: fp16\nY[a] = X[a]", "2:3", ["is -1"]),
    ("a = 4\nX[a]: fp16\nZ[X]: fp16\nY[a] = X[a]", "3:3", ["array"]),
    # statements that are not in the notation
    (ONE + "X[a]", "3:1", ["declares nothing", "X[a]: fp16"]),
    (ONE + "Y[a] == X[a]", "3:1", ["no name"]),
    (ONE + "'words'\nY[a] = X[a]", "3:1", ["comment"]),
    (ONE + "Y[a] = X[a]; Y[a] += 1", "3:14", ["made once"]),
    (ONE + "for i in range(3): pass", "3:1", ["`for` is not part of the notation"]),
    (ONE + "import os", "3:1", ["`import`"]),
    (ONE + "Y[a], Z[a] = X[a], X[a]", "3:1", ["one line at a time"]),
    (ONE + "Y[a] = 'words'", "3:8", ["not a number"]),
    (ONE + "Y[a] = 3j", "3:8", ["not a number"]),
    (ONE + "Y[a] = [X[a]]", "3:8", ["list"]),
    (ONE + "Y[a] = X[a].real", "3:8", ["name is expected"]),
    (ONE + "Y[a] = (lambda: 1)()", "3:9", ["name is expected"]),
    (ONE + "Y[a] = eval(1)", "3:8", ["unknown operator `eval`"]),
    (ONE + "Y[a] = X[a", "3:9", ["never closed"]),
    (ONE + "Y[a] = X[a]]", "3:12", ["unmatched"]),
    (ONE + "  Y[a] = X[a]", "3:2", ["indent"]),
    (ONE + "Y[a] = = X[a]", "3:8", ["invalid syntax", "a statement is"]),
    (ONE + "Y[a] = X[a] \udc80", "1:1", ["UTF-8"]),
    ("é, a = 3, 4\nÄ[é, a]: fp16\nY[é, a] = Ä[é, a] + Z[a]", "3:21", ["unknown array `Z`"]),
    # depth
    (ONE + "Y[a] = " + "(" * 250 + "X[a]" + ")" * 250, "3:208", ["nested"]),
    (ONE + "Y[a] = " + "-(" * 150 + "X[a]" + ")" * 150, "3:210", ["nested more than 100"]),
    (ONE + "Y[a] = " + "X[a] + " * 300 + "1", "3:8", ["nested more than 100"]),
    (ONE + "Y[a] = min(" + "X[a], " * 300 + "1)", "3:8", ["nested more than 100"]),
    (ONE + "Y[a] = 1 < " + "X[a] < " * 300 + "1", "3:8", ["nested more than 100"]),
    (ONE + "b = " + "1 + " * 300 + "1\nY[a] = X[a] * b", "3:5", ["nested more than 100"]),
    (ONE + "Y[a] = " + "X[a] + " * 30000 + "1", "1:1", ["nested too deeply"]),
    # levels
    *(
        (f"{HEAD}with level({options}):\n    S[q, x] = sum[d](Q[q, d] * K[x, d])\n", place, said)
        for options, place, said in [
            ('"smem", group={z: 1}', "4:27", ["no line of this block has an axis `z`", "q, x, d"]),
            ('"smem", group={q: 0}', "4:30", ["tile of `q` is 0"]),
            ('"smem", stream={x: -2}', "4:31", ["tile of `x` is -2"]),
            ('"smem", group={q: 1.5}', "4:30", ["1.5", "whole number"]),
            ('"smem", group={q: 2**50}', "4:30", ["beyond 2**40"]),
            ('"smem", group={q: z}', "4:30", ["`z` has no value"]),
            ('"smem", group={q: Q}', "4:30", ["`Q` has no value"]),
            ('"smme"', "4:6", ["unknown level `smme`", "did you mean `smem`"]),
            ('"gmem"', "4:6", ["highest level"]),
            ("smem", "4:6", ["in quotes"]),
            ("", "4:6", ["in quotes"]),
            ('"smem", grup={q: 1}', "4:20", ["`grup` is not an option", "did you mean `group`"]),
            ('"smem", group={q: 1}, group={q: 2}', "4:34", ["given twice"]),
            ('"smem", group={q: 1, q: 2}', "4:33", ["given twice"]),
            ('"smem", group=4', "4:26", ["group={q: 128}"]),
            ('"smem", group={"q": 3}', "4:27", ["name is expected"]),
            ('"smem", hold={Z: 0}', "4:26", ["unknown array `Z`", "Q, K, S"]),
            ('"smem", hold={K: 3}', "4:26", ["depth 3"]),
            ('"smem", hold={S: 0}', "4:26", ["made in this block"]),
            ('"smem", place={S: "l3"}', "4:27", ["unknown level `l3`"]),
            ('"smem", place={S: 3}', "4:30", ['place={P: "smem"}']),
            ('"smem", place={Z: "gmem"}', "4:27", ["unknown array `Z`"]),
            ('"smem", place={S: "reg"}', "4:27", ["below the block's"]),
            ('"smem", buffers=0', "4:28", ["buffers is 0"]),
        ]
    ),
    (
        HEAD + "V[x, d]: fp16\nwith level('smem', group={d: 1}):\n    S[q, x] = sum[d](Q[q, d] * K[x, d])\n"
        "    O[q, d] = sum[x](S[q, x] * V[x, d])",
        "5:27",
        ["d in S, d' in O", "d_1 = d"],
    ),
    (
        HEAD + "with level('smem'):\n    with level('smem'):\n        S[q, x] = sum[d](Q[q, d] * K[x, d])",
        "5:10",
        ["not below `smem`"],
    ),
    (HEAD + "with level('smem'):\n    V[q]: fp16\nS[q] = V[q]", "4:6", ["computes nothing"]),
    (HEAD + "with level('smem') as f:\n    S[q] = Q[q, 0]", "4:1", ["a block is written"]),
    (HEAD + "with open('smem'):\n    S[q] = Q[q, 0]", "4:6", ["a block is written"]),
    (HEAD + "with level('smem'):\nS[q] = Q[q, 0]", "5:1", ["indent"]),
]


@pytest.mark.parametrize(("text", "place", "parts"), ERRORS, ids=[str(i) for i in range(len(ERRORS))])
def test_errors_name_the_place_and_the_repair(text: str, place: str, parts: list[str]) -> None:
    with pytest.raises(WeaveError) as error:
        parse_levelled(text, "file.weave")
    said = str(error.value)
    assert said.startswith(f"file.weave:{place}: "), said
    assert "\n" not in said
    for part in parts:
        assert part in said, said


WORDS = (
    "q x d Q K S 4 0 1e-5 [ ] ( ) { } : , = == + - * ** // / % < <= & | ~ and or not inf where sum max softmax "
    "size fp16 with level out . if lambda ' \" \\ # @ -1 2**50 True None 1j _ ;"
)
PIECES = st.sampled_from([*WORDS.split(), "", "\n", "\t"])


@settings(max_examples=300, deadline=None)
@given(st.lists(PIECES, max_size=30).map(" ".join))
def test_rubbish_is_refused_in_one_line(text: str) -> None:
    try:
        parse_levelled(HEAD + text)
    except WeaveError as error:
        assert "\n" not in str(error)


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_damaged_texts_are_refused_in_one_line(data: st.DataObject) -> None:
    text = source(data.draw(st.sampled_from(names())))[0]
    for _ in range(data.draw(st.integers(1, 3))):
        start = data.draw(st.integers(0, len(text)))
        end = data.draw(st.integers(start, min(start + 6, len(text))))
        text = text[:start] + data.draw(PIECES) + text[end:]
    try:
        parse_levelled(text)
    except WeaveError as error:
        assert "\n" not in str(error)


def test_the_library_refuses_what_is_no_text(tmp_path: Path) -> None:
    binary, empty, latin, large = (tmp_path / n for n in ("b", "e", "l", "g"))
    binary.write_bytes(b"\x7fELF\0\0")
    empty.write_bytes(b"  \n")
    latin.write_bytes("é = 4".encode("latin-1"))
    large.write_bytes(b"#" * (1 << 21))
    for what, part in [
        ("attenton", "did you mean `attention`"),
        ("nothing_of_this_name", "no algorithm or file"),
        (str(tmp_path), "is a directory"),
        (str(tmp_path / "absent.weave"), "no algorithm or file"),
        (str(binary), "binary"),
        (str(empty), "is empty"),
        (str(latin), "UTF-8"),
        (str(large), "larger"),
        ("a" * 5000, "too long"),
        ("a\0b", "no algorithm or file"),
        ("a\nb", "no algorithm or file"),
    ]:
        with pytest.raises(WeaveError) as error:
            source(what)
        assert part in str(error.value)
        assert "\n" not in str(error.value)
