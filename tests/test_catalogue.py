"""The catalogue: what its files say, what theory says of each, and that each runs."""

from __future__ import annotations

import json
import subprocess
import sys
import time

import pytest
import sympy
from first import FIRST

from ioweave.derive.execution.check import check
from ioweave.derive.streaming import prove
from ioweave.diagrams.errors import WeaveError
from ioweave.diagrams.library import FAMILIES, catalogue_text, description, entries, entry, load, names
from ioweave.diagrams.notation import parse, parse_with_warnings, print_diagram
from ioweave.diagrams.opening import open_diagram

# Entry, axis, verdict, and the values of the state as a formula of the sizes, with tile 1 on every axis that all
# parts of the state share and the other axes whole; all worked out by hand. m, l, o: running maximum, sum, output.
# None where a verdict of further passes leaves the state open.
THEORY: list[tuple[str, str, str, str | None]] = [
    ("attention", "x", "one-pass", "d + 2"),  # m, l, o[d]
    ("attention", "q", "one-pass", "0"),  # queries are independent
    ("causal_attention", "x", "one-pass", "d + 2"),
    ("multi_head_attention", "x", "one-pass", "d + 2"),
    ("grouped_query_attention", "x", "one-pass", "d + 2"),
    ("attention_statistics", "x", "one-pass", "d + 2"),  # both outputs are functions of m and l
    ("cross_attention", "x", "one-pass", "e + 2"),
    # a mask takes terms out of the sums and leaves the state as it is
    ("block_causal_attention", "x", "one-pass", "d + 2"),
    ("document_attention", "x", "one-pass", "d + 2"),
    ("prefix_attention", "x", "one-pass", "d + 2"),
    ("sliding_window_attention", "x", "one-pass", "d + 2"),
    ("variable_length_attention", "x", "one-pass", "d + 2"),
    ("table_masked_attention", "x", "one-pass", "d + 2"),
    ("block_sparse_attention", "u", "one-pass", "d + 2"),
    # whatever a score is made of, it is a function of one key
    ("alibi_attention", "x", "one-pass", "d + 2"),
    ("pair_bias_attention", "x", "one-pass", "d + 2"),  # the gate waits for the end
    ("rotary_attention", "x", "one-pass", "e + 2"),
    ("qk_norm_attention", "x", "one-pass", "d + 2"),  # the gains are data: no bound on the scores
    ("additive_attention", "x", "one-pass", "e + 2"),  # bounded by sum |w|, which is data
    ("l2_attention", "x", "one-pass", "d + 2"),  # scores have an upper bound and no lower one: l may underflow
    ("dropout_attention", "x", "one-pass", "d + 2"),  # what is dropped depends on positions alone
    ("t5_attention", "x", "one-pass", "d + 2"),
    ("softcap_attention", "x", "one-pass", "d + 1"),  # |s| <= 50, and exp(50) is in range of bf16 and fp32: no m
    ("cosine_attention", "x", "one-pass", "d + 1"),  # |s| <= 10 for unit rows: no m
    ("smoothed_keys_attention", "x", "one-pass", "d + 2"),  # q . mean(k) is one number per row: softmax drops it
    # heads and caches
    ("decode_attention", "x", "one-pass", "d + 2"),
    ("paged_attention", "x", "one-pass", "d + 2"),
    ("multi_query_attention", "x", "one-pass", "d + 2"),
    ("latent_attention", "x", "one-pass", "e + 2"),
    ("latent_decode", "x", "one-pass", "c + 2"),
    ("differential_attention", "x", "one-pass", "2 * e + 4"),  # two triples; the norm over e waits for the end
    ("talking_heads_attention", "x", "one-pass", "g * d + 2"),  # the mix waits: an o[d] for every head it feeds
    ("mixed_weights_attention", "x", "one-pass", "g * d + 2"),  # as above
    # normalisers
    ("sink_attention", "x", "one-pass", "d + 2"),  # the triple starts from (sink, 1, 0)
    ("softmax_one_attention", "x", "one-pass", "d + 2"),  # the one is a sink of 0
    ("slot_attention", "x", "one-pass", "d + 1"),  # the softmax is over slots, in one step: l, o[d]
    ("softmax_of_softmax", "x", "k-pass(2)", None),  # exp(exp(s) / l) is no finite sum of products
    ("sinkhorn_attention", "x", "k-pass(2)", None),  # column sums of P are local to a step, once the rows are known
    ("sinkhorn_attention", "q", "k-pass(2)", None),  # rows are local; outputs of q wait for the columns
    ("sinkhorn_attention_twice", "x", "k-pass(3)", None),  # two row normalisers, each of a finished matrix, then O
    ("sinkhorn_attention_twice", "q", "k-pass(3)", None),
    # functions of the weights
    ("attention_weights", "x", "k-pass(2)", "2"),  # an output on x that needs l
    ("attention_weights", "q", "one-pass", "0"),
    ("column_sums", "x", "k-pass(2)", "2"),
    ("column_sums", "q", "one-pass", "1"),  # with a row whole, a sum for each key
    ("squared_weights_attention", "x", "one-pass", "d + 3"),  # second moments: sums of exp(s)^2 and exp(s)^2 v
    ("quantised_weights_attention", "x", "one-pass-list(509)", None),  # weights of 1/510 and less are rounded to 0
    ("thresholded_attention", "x", "one-pass-list(99)", "2 + 99 * (d + 2)"),  # m, l; key, position and row of values
    ("rounded_weights_attention", "x", "one-pass-list(253)", "2 + 253 * (d + 2)"),  # of 1/254 and less are 0
    ("offset_weights_attention", "x", "k-pass(2)", None),  # whatever the weight, the offset may round up
    ("attentive_pooling", "x", "one-pass", "2 * d + 2"),  # m, l, and a mean and a spread for each channel
    # no softmax over the pairs
    ("spherical_attention", "x", "one-pass", "d + 1"),  # sum of squares, o[d]
    ("sigmoid_attention", "x", "one-pass", "1"),  # o alone, whose axes are all shared
    ("relu_attention", "x", "one-pass", "1"),
    ("squared_relu_attention", "x", "one-pass", "1"),
    ("gaussian_attention", "x", "one-pass", "1"),  # exponents of at most 0 and no normaliser: no m
    ("linear_attention", "x", "one-pass", "e + 1"),  # l, o[e]
    ("efficient_attention", "x", "one-pass", "e + 2"),  # a triple for every channel d
    ("attention_free_transformer", "x", "one-pass", "3"),  # a triple for every query and channel
    ("cross_covariance_attention", "x", "one-pass", "d * e + d + e"),  # products and two sums of squares; values are
    ("cross_covariance_attention", "x'", "one-pass", "0"),  # read after them, along an axis of their own
    # recurrences: the state is the one element before; all of its axes are shared
    ("recurrent_linear_attention", "t", "one-pass", "1"),
    ("retention", "t", "one-pass", "1"),
    ("gated_linear_attention", "t", "one-pass", "1"),
    ("state_space_duality", "t", "one-pass", "1"),
    ("selective_state_space", "t", "one-pass", "1"),
    ("delta_rule", "t", "one-pass", "1"),  # a step multiplies the state by a matrix, identity less an outer product
    ("gated_delta_rule", "t", "one-pass", "1"),
    ("weighted_key_value", "t", "one-pass", "2"),  # sums of exp(k) v and of exp(k), both decaying
    ("minimal_gated_unit", "t", "one-pass", "1"),
    ("exponential_average", "t", "one-pass", "1"),
    ("advantage_estimation", "t", "one-pass", "1"),  # backward
    ("prefix_sum", "x", "one-pass", "1"),
    ("forgetting_attention", "j", "one-pass", None),  # the triple, and the running sum of gates, which has no query
    ("stick_breaking_attention", "j", "one-pass", "e + 1"),  # what is left of the stick, o[e]
    ("contextual_position_attention", "j", "one-pass", "d + 3"),  # the triple, and the sum of later gates
    ("log_linear_attention", "t", "one-pass-states(log)", None),  # a state for each level
    ("test_time_training", "t", "one-pass-directed", "1"),  # tanh of the state: maps of a step do not compose
    ("recurrent_network", "t", "one-pass-directed", "1"),
    ("delta_former", "j", "unbounded", None),  # every value needs all corrected values before it
    # selection: keys and positions of the list; what they choose is read after
    ("topk_attention", "x", "one-pass-list(32)", "2 * k"),
    ("indexed_sparse_attention", "x", "one-pass-list(256)", "2 * k"),
    ("block_mixture_attention", "n", "one-pass-list(4)", "2 * k"),
    ("native_sparse_attention", "n", "one-pass-list(4)", "2 * k + d + 2"),  # and the triple of compressed blocks
    ("native_sparse_attention", "x", "one-pass", "d + 2"),  # the window alone walks the keys
    ("router", "e", "one-pass-list(6)", "2 * k"),
    ("mixture_of_experts", "f", "one-pass", "1"),
    ("embedding", "t", "one-pass", "0"),
    ("sparsemax_attention", "x", "unbounded", None),  # the support may be all keys
    ("entmax_attention", "x", "unbounded", None),
    ("median", "x", "unbounded", None),
    ("nucleus_sampling", "v", "unbounded", None),
    # losses
    ("cross_entropy", "v", "one-pass", "3"),  # m, l, the logit of the label
    ("cross_entropy_z_loss", "v", "one-pass", "3"),
    ("cross_entropy_smoothing", "v", "one-pass", "4"),  # m, l, sum y z, sum y
    ("cross_entropy_smoothing_z_loss", "v", "one-pass", "4"),  # m, l, the logit of the label, sum z
    ("softmax_entropy", "v", "one-pass", "3"),  # m, l, sum exp(z - m) (z - m)
    ("distillation", "v", "one-pass", "5"),  # m and l of both, sum exp(t - m) (t - z)
    ("preference_log_ratio", "v", "one-pass", "5"),  # m, l of both, the difference at the label
    ("contrastive_loss", "j", "one-pass", "2 * i + 2"),  # m, l for each row; sums of columns and of the diagonal
    ("contrastive_loss", "i", "one-pass", "2 * j + 2"),
    ("late_interaction", "x", "one-pass", "1"),  # the maximum; the sum over q waits for the end
    ("late_interaction", "q", "one-pass", "1"),
    ("cosine_similarity", "m", "one-pass", "3"),  # x y, x^2, y^2
    # norms
    ("layernorm", "m", "k-pass(2)", "2"),  # an output on m that needs the mean and the variance
    ("rmsnorm", "m", "k-pass(2)", "1"),
    ("rmsnorm", "t", "one-pass", "0"),
    ("batch_norm", "n", "k-pass(2)", "2"),
    ("batch_norm", "c", "one-pass", "0"),
    ("group_norm", "p", "k-pass(2)", "2"),
    ("variance", "m", "one-pass", "2"),  # the mean and the sum of squares about it; the count is the position
    ("cross_correlation", "b", "one-pass", "i * j + 2 * i + 2 * j"),  # products of pairs, and two moments of each side
    # products
    ("matmul", "b", "one-pass", "1"),
    ("matmul_chain", "f", "one-pass", "1"),
    ("convolution", "c", "one-pass", "1"),
    ("swiglu_mlp", "f", "one-pass", "1"),
    ("geglu_mlp", "f", "one-pass", "1"),
    ("rmsnorm_matmul", "m", "one-pass", "n + 1"),  # sum of squares, y[n]
    ("layernorm_matmul", "m", "one-pass", "3 * n + 2"),  # two moments; sums of x g w, g w and b w
    ("matmul_rmsnorm", "n", "k-pass(2)", "1"),
    ("matmul_rmsnorm", "m", "one-pass", "1"),  # z alone; its row is whole
    ("scaled_matmul", "k", "one-pass", "n + 1"),  # the scale is a factor of every term: the maximum, y[n]
    ("quantised_matmul", "k", "k-pass(2)", None),  # the scale is inside the rounding
]


@pytest.mark.parametrize("name", names())
def test_an_entry_reads_back_as_printed(name: str) -> None:
    found, warnings = parse_with_warnings(catalogue_text(name), f"{name}.weave")
    again = parse(print_diagram(found))
    assert warnings == ()
    assert again == found
    assert again.doc == found.doc


def test_every_entry_says_what_it_is() -> None:
    found = entries()
    assert sorted(e.name for e in found) == list(names())
    assert [e.family for e in found] == sorted((e.family for e in found), key=FAMILIES.index)
    assert {e.family for e in found} == set(FAMILIES)
    assert len({e.sentence for e in found}) == len(found)
    for e in found:
        assert e.sentence.endswith(".")
        assert len(e.sentence) <= 120, e.name
        told = description(catalogue_text(e.name))
        kinds = [line.split(": ")[0] for line in told.splitlines()[2:]]
        assert kinds in (["Family"], ["Family", "Paper"], ["Family", "Source"]), e.name
        assert told.splitlines()[1] == ""
        assert bool(e.paper) == (len(kinds) == 2)


def test_an_unknown_family_is_refused() -> None:
    text = '"""Twice an array.\n\nFamily: doubles"""\ni = 4\nX[i]: fp32\nY[i] = 2 * X[i]\n'
    with pytest.raises(WeaveError, match="twice has the family `doubles`; write one of: softmax attention; "):
        entry("twice", text)
    with pytest.raises(WeaveError, match="twice has no family"):
        entry("twice", text.replace("Family: doubles", ""))
    assert entry("twice", text.replace("doubles", "products")).sentence == "Twice an array."


def test_the_list_is_quick_and_makes_no_diagram() -> None:
    start = time.perf_counter()
    entries()
    assert time.perf_counter() - start < 0.5
    code = "import sys; from ioweave.diagrams.library import entries; entries(); print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "ioweave.diagrams.library" in loaded
    assert not {"numpy", "sympy", "ioweave.derive"} & set(loaded)


def test_the_list_has_families_and_records() -> None:
    text, records = (
        subprocess.run(
            [sys.executable, "-m", "ioweave", "list", "algorithms", *more], capture_output=True, text=True, check=True
        ).stdout
        for more in ([], ["--json"])
    )
    assert [line for line in text.splitlines() if line and not line.startswith(" ")] == list(FAMILIES)
    rows = [line.split()[0] for line in text.splitlines() if line.startswith("  ")]
    assert rows == [e.name for e in entries()]
    assert json.loads(records) == [e.to_json() for e in entries()]


@pytest.mark.parametrize(("name", "axis", "verdict", "state"), THEORY, ids=[f"{n}-{a}" for n, a, _, _ in THEORY])
def test_the_prover_finds_what_theory_says(name: str, axis: str, verdict: str, state: str | None) -> None:
    diagram = load(name)
    sizes = diagram.values()
    found = prove(open_diagram(diagram), axis, sizes, definitions=diagram.definitions)
    assert found.verdict == verdict, found.refusal
    if state is not None:
        wanted = sympy.sympify(state, locals={n: sympy.Symbol(n) for n in sizes}).subs(sizes)
        assert found.state_values == int(wanted), [(s.name, s.axes) for s in found.state]


def test_theory_speaks_of_every_entry() -> None:
    # the block is a chain of regions, with no axis that all of it streams over
    assert set(names()) - {n for n, *_ in THEORY} == {"gpt3_block"}


# those of FIRST run at ten draws in test_execution.py
@pytest.mark.parametrize("name", [n for n in names() if n not in FIRST])
def test_an_entry_runs_with_exact_counts(name: str) -> None:
    rows = [c.row for c in check(load(name), seed=7, draws=3)]
    assert not [(row.axes, row.tiles, row.because) for row in rows if not row.passed]
