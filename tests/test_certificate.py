"""Certificates: what is written verifies without the prover, and nothing that was tampered with does."""

from __future__ import annotations

import ast
import json
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ioweave.cli import run
from ioweave.derive.certificate import numbers
from ioweave.derive.certificate.codec import decode, encode, read_json, reported
from ioweave.derive.certificate.identities import identities
from ioweave.derive.certificate.machine import direct
from ioweave.derive.certificate.record import Certificate, from_bytes
from ioweave.derive.certificate.structure import lay_out
from ioweave.derive.certificate.values import kept
from ioweave.derive.certificate.verify import verify
from ioweave.derive.certificate.write import certify
from ioweave.derive.reporting.subject import Subject
from ioweave.derive.reporting.target import make_target
from ioweave.derive.reporting.verdicts import stream_report
from ioweave.derive.streaming.equations import equation
from ioweave.derive.streaming.plan import Plan
from ioweave.derive.streaming.verdict import prove
from ioweave.diagrams.arithmetic import FUNCTIONS
from ioweave.diagrams.errors import Refused, WeaveError
from ioweave.diagrams.expressions import Apply, Expr, Number
from ioweave.diagrams.library import load
from ioweave.diagrams.notation import parse
from ioweave.diagrams.opening import open_diagram
from ioweave.hierarchy.approximation import Approximation, Replaced
from ioweave.hierarchy.changes import Change
from ioweave.hierarchy.verdicts import Alternative, CascadeRow, Verdict

ROOT = Path(__file__).resolve().parent.parent
CATALOGUE = sorted(p.stem for p in (ROOT / "ioweave" / "diagrams" / "catalogue").glob("*.weave"))
Record = dict[str, Any]

LAYERNORM = (
    "t, m, n = 8, 16, 12\nX[t, m]: fp16\nW[m, n]: fp16\n"
    "M[t] = mean[m](X[t, m])\nR[t] = mean[m]((X[t, m] - M[t])**2)\n"
    "Y[t, n] = sum[m]((X[t, m] - M[t]) * W[m, n]) * rsqrt(R[t] + 1)\n"
)
COLUMNS = (
    "q, x, d = 6, 8, 4\nQ[q, d]: fp16\nK[x, d]: fp16\n"
    "S[q, x] = sum[d](Q[q, d] * K[x, d]) / sqrt(d)\nP[q, x] = softmax[x](S[q, x])\nC[x] = sum[q](P[q, x])\n"
)
PRODUCT = "t, m = 4, 8\nX[t, m]: fp32 > 0\nM[t] = max[m](X[t, m])\nR[t] = prod[m](X[t, m] / M[t])\n"


def certificate(text: str, axis: str) -> Certificate:
    """The certificate of lines."""
    diagram = parse(text)
    return certify(diagram, prove(open_diagram(diagram), axis, diagram.values()))


@pytest.fixture(scope="module")
def attention() -> bytes:
    """The certificate of attention over its keys."""
    diagram = load("attention")
    return certify(diagram, prove(open_diagram(diagram), "x", diagram.values())).to_bytes()


@pytest.mark.parametrize("name", CATALOGUE)
def test_every_entry_and_axis_comes_back_and_holds(name: str) -> None:
    diagram = load(name)
    opened = open_diagram(diagram)
    for axis in dict.fromkeys(a for b in opened.boxes for a in b.all_axes):
        verdict = prove(opened, axis, diagram.values(), definitions=diagram.definitions)
        if verdict.verdict in ("unproved", "unbounded"):
            with pytest.raises(Refused, match=verdict.verdict):
                certify(diagram, verdict)
            continue
        made = certify(diagram, verdict)
        data = made.to_bytes()
        read = from_bytes(data)
        assert read == made
        assert read.to_bytes() == data
        assert verify(read).failure == "", (name, axis)


@pytest.mark.parametrize("text", [LAYERNORM, COLUMNS, PRODUCT], ids=["layernorm", "columns", "product"])
def test_other_algorithms(text: str) -> None:
    opened = open_diagram(parse(text))
    for axis in dict.fromkeys(a for b in opened.boxes for a in b.all_axes):
        assert verify(from_bytes(certificate(text, axis).to_bytes())).failure == ""


# what is tampered with: a change to the record, and words of the line that rejects it


def box(record: Record, name: str) -> Record:
    """A box of the plan in the file."""
    found: Record = next(b for b in record["plan"]["boxes"] if b["name"] == name)
    return found


def drop_rescale(record: Record) -> None:
    del box(record, "P.sum")["rescale"]


def drop_rescale_everywhere(record: Record) -> None:
    del box(record, "P.sum")["rescale"]
    merge = next(m for m in record["plan"]["merges"] if m["accumulator"] == "P.sum")
    del merge["factor"]
    pair = next(i for i in record["identities"] if i["of"] == "P.sum")
    pair["right"] = pair["right"]["args"][1]


def change_tail(record: Record) -> None:
    tail = box(record, "O")
    tail["body"] = {"node": "apply", "op": "mul", "args": [{"node": "number", "value": 2}, tail["body"]]}


def change_tail_a_little(record: Record) -> None:
    """Its identity too, so that numbers alone can tell."""
    tail = box(record, "O")
    tail["body"] = {"node": "apply", "op": "mul", "args": [{"node": "number", "value": 1.0000001}, tail["body"]]}
    pair = next(i for i in record["identities"] if i["of"] == "O")
    pair["right"] = tail["body"]


def rename_a_read(record: Record) -> None:
    box(record, "S")["body"]["args"][0]["array"] = "S.total"


def read_another_array(record: Record) -> None:
    text = json.dumps(box(record, "O.acc")["body"]).replace('"V"', '"K"')
    box(record, "O.acc")["body"] = json.loads(text)


def swap_sides(record: Record) -> None:
    pair = record["identities"][0]
    pair["left"], pair["right"] = pair["right"], pair["left"]


def drop_an_identity(record: Record) -> None:
    record["identities"].pop()


def edit_identity_text(record: Record) -> None:
    record["verdict"]["identities"][0] = "exp(a + b) = exp(a) + exp(b)"


def remove_output(record: Record) -> None:
    plan = record["plan"]
    plan["boxes"] = [b for b in plan["boxes"] if b["name"] != "O"]
    plan["stages"] = [s for s in plan["stages"] if s[0] != "O"]


def widen_state(record: Record) -> None:
    record["verdict"]["state"][0]["axes"].append("d")


def state_along_the_axis(record: Record) -> None:
    box(record, "P.max")["axes"].append("x")


def edit_state_values(record: Record) -> None:
    record["verdict"]["state_values"] -= 1


def edit_state_bytes(record: Record) -> None:
    record["verdict"]["state_bytes"] += 2


def edit_state_dtype(record: Record) -> None:
    record["verdict"]["state"][0]["dtype"] = "fp16"


def narrow_a_box(record: Record) -> None:
    box(record, "O.acc")["dtype"] = "fp8"


def break_merge(record: Record) -> None:
    record["plan"]["merges"][1]["factor"] = None


def merge_by_another_operation(record: Record) -> None:
    record["plan"]["merges"][0]["op"] = "sum"


def lie_about_a_repair(record: Record) -> None:
    record["verdict"]["state"][1]["repair"] = "none"


def walk_backward_alone(record: Record) -> None:
    record["verdict"]["direction"] = "backward"


def casts_that_are_not_written(record: Record) -> None:
    record["verdict"]["exact"] = "casts"


def edit_source(record: Record) -> None:
    record["source"] = record["source"].replace("sqrt(d)", "d")


def edit_sizes(record: Record) -> None:
    record["sizes"]["x"] = 8


def invent_a_fact(record: Record) -> None:
    record["facts"].append({"array": "Q", "sign": ">", "bound": 0.0})


def another_axis(record: Record) -> None:
    record["axis"] = "q"


def no_axis(record: Record) -> None:
    record["axis"] = "z"


def drop_the_trials(record: Record) -> None:
    record["trials"] = []


def a_trial_that_failed(record: Record) -> None:
    record["trials"][0]["error"] = 0.5


def evaluate_out_of_order(record: Record) -> None:
    boxes = record["plan"]["boxes"]
    boxes[0], boxes[1] = boxes[1], boxes[0]


def read_old_values_in_terms(record: Record) -> None:
    text = json.dumps(box(record, "P.exp")["body"]).replace("P.max~", "P.max~old")
    box(record, "P.exp")["body"] = json.loads(text)


def read_finished_values_early(record: Record) -> None:
    text = json.dumps(box(record, "P.exp")["body"]).replace("P.max~", "P.max")
    box(record, "P.exp")["body"] = json.loads(text)


def a_factor_along_the_axis(record: Record) -> None:
    box(record, "P.sum")["rescale"] = "P.exp"


def maximum_of_the_negative(record: Record) -> None:
    b = box(record, "P.max")
    b["body"] = {"node": "apply", "op": "neg", "args": [b["body"]]}


def sum_in_place_of_maximum(record: Record) -> None:
    box(record, "P.max")["reduction"] = "sum"


def an_unknown_operator(record: Record) -> None:
    box(record, "S")["body"]["op"] = "eval"


def minus_of_a_predicate(record: Record) -> None:
    b = box(record, "S")
    less = {"node": "apply", "op": "lt", "args": [b["body"], b["body"]]}
    b["body"] = {"node": "apply", "op": "neg", "args": [less]}


def hide_a_pass_behind_another_name(record: Record) -> None:
    """The whole of the axis summed within each step, by an axis of the same size."""
    b = box(record, "P.max")
    text = json.dumps(b["body"]).replace('"x"', '"x\'"')
    del b["running"]
    b.update(body=json.loads(text), over=["x'"])


def read_old_values_as_new(record: Record) -> None:
    """The factor is one: nothing is rescaled."""
    text = json.dumps(box(record, "P.max.delta")["body"]).replace("P.max~old", "P.max~")
    box(record, "P.max.delta")["body"] = json.loads(text)


def swap_old_and_new(record: Record) -> None:
    text = json.dumps(box(record, "P.max.delta")["body"]).replace("P.max~old", "P.max?")
    box(record, "P.max.delta")["body"] = json.loads(text.replace("P.max~", "P.max~old").replace("P.max?", "P.max~"))


def sum_of_shifted_scores(record: Record) -> None:
    b = box(record, "P.max")
    b["body"] = {"node": "apply", "op": "add", "args": [b["body"], {"node": "number", "value": 1}]}


def a_factor_of_two(record: Record) -> None:
    delta = box(record, "P.max.delta")
    delta["body"] = {"node": "apply", "op": "mul", "args": [delta["body"], {"node": "number", "value": 2}]}


def rename_a_formula(record: Record) -> None:
    record["verdict"]["body"][0] = "T = nothing"


TAMPERED: list[tuple[Callable[[Record], None], str]] = [
    (drop_rescale, "P.sum"),
    (drop_rescale_everywhere, "P.sum"),
    (change_tail, "identities"),
    (change_tail_a_little, "O of the plan is not O"),
    (rename_a_read, "S.total"),
    (read_another_array, "plan"),
    (swap_sides, "identities"),
    (drop_an_identity, "identities"),
    (edit_identity_text, "identities"),
    (remove_output, "output O"),
    (widen_state, "axes"),
    (state_along_the_axis, "P.max"),
    (edit_state_values, "state_values"),
    (edit_state_bytes, "state_bytes"),
    (edit_state_dtype, "dtype"),
    (narrow_a_box, "O.acc"),
    (break_merge, "merge of P.sum"),
    (merge_by_another_operation, "merge of P.max"),
    (lie_about_a_repair, "repair"),
    (walk_backward_alone, "backward"),
    (casts_that_are_not_written, "exact"),
    (edit_source, "identities"),
    (edit_sizes, "sizes"),
    (invent_a_fact, "facts"),
    (another_axis, "streams x, not q"),
    (no_axis, "no axis z"),
    (drop_the_trials, "none"),
    (a_trial_that_failed, "trial 0"),
    (evaluate_out_of_order, "no earlier box"),
    (read_old_values_in_terms, "P.exp"),
    (read_finished_values_early, "pass"),
    (a_factor_along_the_axis, "P.sum"),
    (maximum_of_the_negative, "identities"),
    (sum_in_place_of_maximum, "P.max"),
    (an_unknown_operator, "eval"),
    (minus_of_a_predicate, "identities"),
    (hide_a_pass_behind_another_name, "x'"),
    (rename_a_formula, "body"),
]


@pytest.mark.parametrize(("change", "words"), TAMPERED, ids=lambda p: getattr(p, "__name__", ""))
def test_what_was_tampered_with_is_rejected(attention: bytes, change: Callable[[Record], None], words: str) -> None:
    record = json.loads(attention)
    change(record)
    failure = verify(from_bytes(json.dumps(record).encode())).failure
    assert words in failure
    assert "\n" not in failure


def with_its_identities(record: Record) -> Record:
    """The record with the equations that its boxes, as they are now, would rest on."""
    c = from_bytes(json.dumps(record).encode())
    diagram = parse(c.source)
    opened = open_diagram(diagram)
    found = identities(lay_out(c.plan, opened, c.axis, diagram.values()), opened)
    return {**record, "identities": encode(found)}


CLEVER: list[tuple[Callable[[Record], None], str]] = [
    (drop_rescale_everywhere, "the state P.sum of pass 1 differs"),
    (change_tail, "O of the plan is not O"),
    (change_tail_a_little, "O of the plan is not O"),
    (read_old_values_as_new, "differ"),
    (swap_old_and_new, "P.sum"),
    (maximum_of_the_negative, "P.max of the plan is not P.max"),
    (sum_of_shifted_scores, "P.max of the plan is not P.max"),
    (edit_source, "S of the plan is not S"),
    (minus_of_a_predicate, "cannot be run"),
    (a_factor_of_two, "P.sum"),
]


@pytest.mark.parametrize(("change", "words"), CLEVER, ids=lambda p: getattr(p, "__name__", ""))
def test_numbers_tell_where_the_equations_were_changed_too(
    attention: bytes, change: Callable[[Record], None], words: str
) -> None:
    record = json.loads(attention)
    change(record)
    failure = verify(from_bytes(json.dumps(with_its_identities(record)).encode())).failure
    assert words in failure
    assert failure.startswith("laws of the state")


def fewer_passes(record: Record) -> None:
    record["verdict"].update(verdict="one-pass", passes=1, refusal=None)


def fewer_passes_in_the_plan_too(record: Record) -> None:
    fewer_passes(record)
    record["plan"]["stages"] = [[n, min(p, 1), s] for n, p, s in record["plan"]["stages"]]
    record["plan"]["refusals"] = []


@pytest.mark.parametrize("change", [fewer_passes, fewer_passes_in_the_plan_too], ids=lambda c: c.__name__)
def test_fewer_passes_than_the_boxes_need(change: Callable[[Record], None]) -> None:
    record = json.loads(certificate(COLUMNS, "x").to_bytes())
    assert record["verdict"]["verdict"] == "k-pass(2)"
    change(record)
    assert "pass" in verify(from_bytes(json.dumps(record).encode())).failure


def test_a_cast_cannot_be_left_out() -> None:
    text = COLUMNS.replace("/ sqrt(d)", "/ sqrt(d)\nF[q, x] = fp8(S[q, x])").replace("softmax[x](S", "softmax[x](F")
    record = json.loads(certificate(text, "x").to_bytes())
    assert record["verdict"]["exact"] == "casts"
    cast = box(record, "F")
    cast["body"] = cast["body"]["args"][0]
    record = with_its_identities(record)
    assert (
        verify(from_bytes(json.dumps(record).encode())).failure
        == "laws of the state: F of the plan is not F of the diagram"
    )


# recurrences, lists, masks by chance, and what numbers say of a verdict

THRESHOLDED = (
    "q, x, d = 3, 8, 2\nt = 0.3\nS[q, x]: fp32\nV[x, d]: fp32\nP[q, x] = softmax[x](S[q, x])\n"
    "O[q, d] = sum[x](where(P[q, x] > t, P[q, x], 0) * V[x, d])\n"
)
DROPPED = "q, x = 3, 8\nS[q, x]: fp32\nR[q] = sum[x](where(keep(q, x, p=0.4), S[q, x], 0))\n"
RUNNING = "t, n = 9, 2\nX[t, n]: fp32\nA[t]: fp32\nH[t, n] = scan[t](A[t] * H[t-1, n] + X[t, n], start=0)\n"
SOURCES = {"thresholded": (THRESHOLDED, "x"), "dropped": (DROPPED, "x"), "running": (RUNNING, "t")}
ENTRIES = {"delta_rule": "t", "stick_breaking_attention": "j", "topk_attention": "x", "minimal_gated_unit": "t"}


@cache
def written(name: str) -> bytes:
    """The certificate of lines above, or of an entry of the catalogue."""
    diagram, axis = (parse(SOURCES[name][0]), SOURCES[name][1]) if name in SOURCES else (load(name), ENTRIES[name])
    verdict = prove(open_diagram(diagram), axis, diagram.values(), definitions=diagram.definitions)
    return certify(diagram, verdict).to_bytes()


def failure_of(record: Record) -> str:
    """What the check of a record finds."""
    return verify(from_bytes(json.dumps(record).encode())).failure


def swapped(text: str, first: str, second: str) -> str:
    """A text with two of its words in each other's places."""
    return text.replace(first, "\0").replace(second, first).replace("\0", second)


def scan_backward(record: Record) -> None:
    box(record, "H")["scan"]["backward"] = True


def scan_backward_everywhere(record: Record) -> None:
    """Every word that says so too, so that numbers alone can tell."""
    scan_backward(record)
    segments = record["plan"]["segments"]
    for b in (*segments["scans"], *segments["maps"]):
        b["scan"]["backward"] = True
    record["plan"]["walks"] = ["backward"]
    record["verdict"]["direction"] = "backward"


def scan_from_one(record: Record) -> None:
    one = {"node": "number", "value": 1}
    box(record, "H")["scan"]["start"] = one
    record["plan"]["segments"]["scans"][0]["scan"]["start"] = one
    record["verdict"]["state"][0]["identity"] = "1"


def scan_of_another_axis(record: Record) -> None:
    box(record, "H")["scan"]["axis"] = "n"


def said_to_walk_backward(record: Record) -> None:
    record["verdict"]["direction"] = "backward"


def said_to_walk_either_way(record: Record) -> None:
    record["verdict"]["direction"] = "both"


def said_to_commute(record: Record) -> None:
    record["verdict"]["commutative"] = True


def forge_the_merge(record: Record) -> None:
    record["verdict"]["merge"] = "H = H₁ + H₂"


def forget_the_merge(record: Record) -> None:
    del record["plan"]["segments"]
    record["verdict"]["merge"] = None


def join_without_the_map(record: Record) -> None:
    """The carry of the earlier piece is added as it is."""
    for b in record["plan"]["segments"]["joined"]:
        if b["name"] == "H.of.H":
            b["body"] = b["body"]["args"][1]


def join_the_other_way_round(record: Record) -> None:
    """The maps of two pieces are matrices: their product has an order."""
    text = json.dumps(record["plan"]["segments"]["joined"], ensure_ascii=False)
    record["plan"]["segments"]["joined"] = json.loads(swapped(text, 'S.map₁"', 'S.map₂"'))


def make_less_again(record: Record) -> None:
    record["plan"]["segments"]["again"] = []
    record["plan"]["kept"] = []


def start_pieces_from_one(record: Record) -> None:
    record["plan"]["segments"]["neutral"][0][1] = 1.0


def a_lift_that_is_none(record: Record) -> None:
    record["plan"]["segments"]["lifts"] = []


def peek_at_an_input_in_a_join(record: Record) -> None:
    text = json.dumps(record["plan"]["segments"]["joined"], ensure_ascii=False)
    record["plan"]["segments"]["joined"] = json.loads(text.replace('"H₁"', '"A"'))


def drop_the_other_direction(record: Record) -> None:
    record["opposite"] = None


def break_the_other_direction(record: Record) -> None:
    """Its lines are written anew, so that they say what it does."""
    seen = next(b for b in record["opposite"]["boxes"] if b["name"] == "O.seen")
    seen["body"]["args"].reverse()
    seen["body"]["op"] = "sub"
    c = from_bytes(json.dumps(record).encode())
    assert c.opposite is not None
    record["verdict"]["opposite"] = [equation(b) for b in (*c.opposite.body, *c.opposite.tail)]


def the_same_direction_twice(record: Record) -> None:
    record["opposite"] = record["plan"]


def one_slot_less(record: Record) -> None:
    record["plan"]["lengths"][0][1] -= 1


def one_slot_less_everywhere(record: Record) -> None:
    """Two terms of 3 that may count: every count follows."""
    one_slot_less(record)
    verdict = record["verdict"]
    (length,) = (n["slots"] for n in verdict["lists"])
    verdict["lists"][0]["slots"] = length - 1
    verdict["verdict"] = f"one-pass-list({length - 1})"
    lists = [s for s in verdict["state"] if s["repair"] == "list"]
    less = [2 if "d" in s["axes"] else 1 for s in lists]
    verdict["state_values"] -= sum(less)
    verdict["state_bytes"] -= 4 * sum(less)


def more_slots_than_are_said(record: Record) -> None:
    record["plan"]["lengths"][0][1] += 1


def a_list_axis_of_the_diagram(record: Record) -> None:
    record["plan"]["lengths"][0][0] = "d"


def positions_by_no_keys(record: Record) -> None:
    del box(record, "I")["keys"]


def positions_by_other_keys(record: Record) -> None:
    b = box(record, "I")
    b["body"] = {"node": "apply", "op": "neg", "args": [b["body"]]}


def a_payload_by_other_keys(record: Record) -> None:
    b = next(b for b in record["plan"]["boxes"] if b["reduction"] == "pick")
    key = b["body"]["args"][0]
    b["body"]["args"][0] = {"node": "apply", "op": "neg", "args": [key]}


def a_list_of_the_smallest(record: Record) -> None:
    for name in ("T", "I"):
        b = box(record, name)
        b["body"] = {"node": "apply", "op": "neg", "args": [b["body"]]}


def a_list_that_is_a_maximum(record: Record) -> None:
    box(record, "T")["reduction"] = "max"


def a_list_by_itself(record: Record) -> None:
    box(record, "T")["keys"] = ["T", "I"]


def less_state_than_the_list(record: Record) -> None:
    record["verdict"]["state_values"] -= 1


def a_list_without_its_length(record: Record) -> None:
    record["verdict"]["lists"] = []


def keep_more(record: Record) -> None:
    text = json.dumps(box(record, "R")["body"])
    assert "0.4" in text
    box(record, "R")["body"] = json.loads(text.replace("0.4", "0.1"))


def keep_by_other_indices(record: Record) -> None:
    text = json.dumps(box(record, "R")["body"])
    keep = '{"node": "apply", "op": "keep", "args": [{"node": "number", "value": 0.4}, '
    assert keep in text
    first, second = '{"node": "index", "axis": "q"}', '{"node": "index", "axis": "x"}'
    box(record, "R")["body"] = json.loads(text.replace(f"{keep}{first}, {second}", f"{keep}{second}, {first}"))


WALKED: list[tuple[str, Callable[[Record], None], str]] = [
    ("running", scan_backward, "said to walk forward"),
    ("running", scan_of_another_axis, "H"),
    ("running", said_to_walk_backward, "its plan walks forward"),
    ("running", said_to_walk_either_way, "its plan walks forward"),
    ("running", said_to_commute, "commutative"),
    ("running", forge_the_merge, "merge"),
    ("running", forget_the_merge, "one-pass-directed"),
    ("running", join_without_the_map, "pieces joined"),
    ("running", peek_at_an_input_in_a_join, "A, which is in no summary"),
    ("running", start_pieces_from_one, "pieces joined"),
    ("delta_rule", join_the_other_way_round, "pieces joined"),
    ("delta_rule", make_less_again, "O follows what is carried"),
    ("stick_breaking_attention", a_lift_that_is_none, "pieces joined"),
    ("stick_breaking_attention", drop_the_other_direction, "other direction"),
    ("stick_breaking_attention", break_the_other_direction, "other direction"),
    ("stick_breaking_attention", the_same_direction_twice, "other direction"),
    ("minimal_gated_unit", said_to_walk_either_way, "its plan walks forward"),
    ("thresholded", one_slot_less, "lists"),
    ("thresholded", one_slot_less_everywhere, "O of the plan is not O"),
    ("thresholded", more_slots_than_are_said, "lists"),
    ("thresholded", a_list_axis_of_the_diagram, "d"),
    ("thresholded", a_payload_by_other_keys, "other keys"),
    ("topk_attention", positions_by_no_keys, "I"),
    ("topk_attention", positions_by_other_keys, "other keys"),
    ("topk_attention", a_list_that_is_a_maximum, "T"),
    ("topk_attention", a_list_by_itself, "T"),
    ("topk_attention", less_state_than_the_list, "state_values"),
    ("topk_attention", a_list_without_its_length, "lists"),
]


@pytest.mark.parametrize(("name", "change", "words"), WALKED, ids=lambda p: getattr(p, "__name__", ""))
def test_recurrences_and_lists_that_were_tampered_with(name: str, change: Callable[[Record], None], words: str) -> None:
    record = json.loads(written(name))
    change(record)
    failure = failure_of(record)
    assert words in failure
    assert "\n" not in failure


NUMBERS: list[tuple[str, Callable[[Record], None], str]] = [
    ("running", scan_backward_everywhere, "H of the plan is not H"),
    ("running", scan_from_one, "H of the plan is not H"),
    ("topk_attention", a_list_of_the_smallest, "T of the plan is not T"),
    ("dropped", keep_more, "R of the plan is not R"),
    ("dropped", keep_by_other_indices, "R of the plan is not R"),
]


@pytest.mark.parametrize(("name", "change", "words"), NUMBERS, ids=lambda p: getattr(p, "__name__", ""))
def test_numbers_tell_of_recurrences_and_lists(name: str, change: Callable[[Record], None], words: str) -> None:
    record = json.loads(written(name))
    change(record)
    failure = failure_of(with_its_identities(record))
    assert failure.startswith("laws of the state"), failure
    assert words in failure


def test_a_mask_by_chance_is_the_documented_hash() -> None:
    drop, rows, columns = np.asarray(0.3), np.arange(40).reshape(-1, 1), np.arange(50).reshape(1, -1)
    found = kept(drop, (rows, columns))
    assert np.array_equal(found, FUNCTIONS["keep"](drop, rows, columns))
    for i, j in ((0, 0), (7, 3), (39, 49)):
        state = 0
        for index in (i, j):
            state = (state + (index + 1) * 0x9E3779B97F4A7C15) % 2**64
            state = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
            state = (state ^ (state >> 27)) * 0x94D049BB133111EB % 2**64
            state ^= state >> 31
        assert bool(found[i, j]) == ((state >> 11) / 2**53 >= 0.3)


def test_equal_keys_come_in_the_order_of_their_positions() -> None:
    text = "n, k = 6, 4\nX[n]: fp32\nI[k] = argtopk[n](X[n], into=k)\nout(I)\n"
    diagram = parse(text)
    boxes = open_diagram(diagram).boxes
    made = direct(boxes, {"X": np.array([1.0, 5.0, -np.inf, 5.0, -np.inf, -np.inf])}, diagram.values())
    assert made["I"].tolist() == [1, 3, 0, 2]


@cache
def weighed(name: str, axis: str) -> bytes:
    """The certificate of a verdict with the evidence beside it."""
    diagram = load(name)
    report = stream_report(Subject(name, diagram, None), axis, make_target())
    assert report.streaming is not None
    return certify(diagram, report.streaming[0]).to_bytes()


def less_than_the_least(record: Record) -> None:
    record["verdict"]["least_state"] -= 1


def more_than_the_least(record: Record) -> None:
    record["verdict"]["least_state"] += 1


def another_rank(record: Record) -> None:
    record["verdict"]["ranks"][0][1] += 1


def another_note(record: Record) -> None:
    record["verdict"]["least_note"] = "nothing less will do"


def no_ranks(record: Record) -> None:
    record["verdict"]["ranks"] = []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (less_than_the_least, "least_state"),
        (more_than_the_least, "least_state"),
        (another_rank, "ranks"),
        (another_note, "least_note"),
        (no_ranks, "ranks"),
    ],
    ids=lambda p: getattr(p, "__name__", ""),
)
def test_evidence_is_measured_again(change: Callable[[Record], None], words: str) -> None:
    record = json.loads(weighed("cosine_similarity", "m"))
    assert record["verdict"]["least_state"] is not None
    assert failure_of(record) == ""
    change(record)
    failure = failure_of(record)
    assert failure.startswith("evidence")
    assert words in failure


def test_a_witness_is_sought_again() -> None:
    record = json.loads(weighed("column_sums", "x"))
    assert record["verdict"]["witness"]["kind"] == "late-output"
    assert failure_of(record) == ""
    record["verdict"]["witness"]["axis"] = "q"
    failure = failure_of(record)
    assert failure.startswith("evidence")
    assert "witness" in failure


def test_every_key_of_a_verdict_comes_back() -> None:
    changes = (Change("an edit", ("Y[t] = 1",), "t", "one-pass", None, False, "a note"),)
    replaced = Replaced("P", "exp", "w", (-1.0, 1.0), (1.0, 1.0), 1e-3, True, "P = 1 + w")
    verdict = Verdict(
        axis="t",
        verdict="one-pass",
        passes=1,
        lists=(("k", 3),),
        opposite=("A = 1",),
        chunked=("A = 2",),
        changes=changes,
        approximation=Approximation(1e-2, 1e-3, 1e-4, 6, (replaced,), ("a <= b",)),
        least_state=3,
        least_note="3 values",
        ranks=((2, 1), (4, 3)),
        witness={"kind": "pair", "prefixes": [[1, 2], [3]]},
        plans=(Alternative(1, 2, 8, 16, ("A",), "a plan"),),
        cascade=(CascadeRow("R", "sum[t](X)", (), "none", ("R",), "", 1),),
    )
    given = json.loads(json.dumps({k: v for k, v in verdict.to_json().items() if k != "trials"}))
    assert decode(Verdict, reported(Verdict, given)) == verdict


@pytest.mark.parametrize(("walk", "words"), [("forward", "backward: 2 cases"), ("backward", "forward: 2 cases")])
def test_the_plan_of_the_direction_that_is_asked_for(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, walk: str, words: str
) -> None:
    path = str(tmp_path / "out.json")
    arguments = ["stream", "stick_breaking_attention", "--axis", "j", "--direction", walk, "--certificate", path]
    assert run(arguments) == 0
    assert json.loads(Path(path).read_text("utf-8"))["plan"]["walks"] == [walk]
    capsys.readouterr()
    assert run(["stream", "--verify", path]) == 0
    assert words in capsys.readouterr().out


def test_a_list_too_long_to_fill_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    diagram = parse(THRESHOLDED)
    verdict = prove(open_diagram(diagram), "x", diagram.values())
    monkeypatch.setattr(numbers, "WORK", 3)  # elements: a list of 3 slots needs 4 terms
    with pytest.raises(Refused, match=r"the list of 3 slots .* is longer than any that a check can fill"):
        certify(diagram, verdict)


def mutations(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The place of every leaf of a record."""
    if isinstance(value, dict):
        return [p for k, v in value.items() for p in mutations(v, (*path, k))]
    if isinstance(value, list):
        return [p for k, v in enumerate(value) for p in mutations(v, (*path, k))]
    return [path]


def test_no_change_of_a_leaf_is_a_crash(attention: bytes) -> None:
    rng = np.random.default_rng(7)
    places = [p for p in mutations(json.loads(attention)) if p[0] in ("plan", "sizes", "trials", "identities", "axis")]
    new: list[Any] = [None, True, -1, 0, 3, 2**61, 0.5, "inf", "", "x", "P.max", "mul", [], {}]
    for _ in range(80):
        record = json.loads(attention)
        place = places[int(rng.integers(len(places)))]
        holder = record
        for step in place[:-1]:
            holder = holder[step]
        before, holder[place[-1]] = holder[place[-1]], new[int(rng.integers(len(new)))]
        try:
            failure = verify(from_bytes(json.dumps(record).encode())).failure
        except WeaveError as error:
            failure = str(error)
        prose = {"reason", "nearest", "waits", "safe"} | {"seed", "data", "error", "parts", "kind", "steps", "axes"}
        same = holder[place[-1]] == before
        assert failure or same or prose & set(place), (place, before, holder[place[-1]])


MALFORMED: dict[str, tuple[Callable[[str], str], str]] = {
    "empty": (lambda t: "", "not JSON"),
    "cut": (lambda t: t[: len(t) // 2], "not JSON"),
    "another format": (lambda t: t.replace("ioweave-certificate", "report"), "no certificate"),
    "a list": (lambda t: "[]", "no certificate"),
    "a later version": (lambda t: t.replace('"version": 1', '"version": 2', 1), "version"),
    "no version": (lambda t: t.replace('"version": 1,', "", 1), "version"),
    "nested deep": (lambda t: "[" * 100_000 + "]" * 100_000, "nested"),
    "an expression nested deep": (
        lambda t: t.replace(
            '"plan": {', '"plan": {"x": ' + '{"node": "apply", "op": "neg", "args": [' * 400 + "]}" * 400 + ",", 1
        ),
        "nested",
    ),
    "digits without end": (lambda t: t.replace('"version": 1', '"version": ' + "1" * 5000, 1), "digits"),
    "a name twice": (lambda t: t.replace('"axis": "x"', '"axis": "x", "axis": "x"', 1), "twice"),
    "not a number": (lambda t: t.replace('"version": 1', '"version": 1, "z": NaN', 1), "NaN"),
    "a field too many": (lambda t: t.replace('"axis": "x"', '"axis": "x", "run": "rm"', 1), "run"),
    "a field missing": (lambda t: t.replace('"accumulate": "fp32",', "", 1), "accumulate"),
    "a box without a name": (lambda t: t.replace('"name": "S.sum",', "", 1), "plan.boxes[0].name"),
    "an unknown node": (lambda t: t.replace('"node": "apply"', '"node": "call"', 1), "node"),
    "a text for a list": (lambda t: t.replace('"assumes": []', '"assumes": "none"'), "assumes"),
    "a huge trial": (
        lambda t: t.replace('"trials": [\n  {\n   "axes": {', '"trials": [{"axes": {"x": 9999999999,'),
        "x",
    ),
    "lines that are none": (lambda t: t.replace("softmax[x](S[q, x])", "softmax["), "source"),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_a_file_that_is_no_certificate(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, attention: bytes, name: str
) -> None:
    change, words = MALFORMED[name]
    path = tmp_path / "out.json"
    changed = change(attention.decode())
    assert changed != attention.decode()
    path.write_text(changed)
    assert run(["stream", "--verify", str(path)]) == 2
    out, error = capsys.readouterr()
    assert (out, error.count("\n")) == ("", 1)
    assert words in error
    assert str(path) in error


def test_bytes_that_are_no_text(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    path.write_bytes(b"\xff\xfe{}")
    assert run(["stream", "--verify", str(path)]) == 2
    assert "UTF-8" in capsys.readouterr().err


def test_expressions_keep_the_kind_of_their_numbers() -> None:
    for value in (1, 1.0, True, -0.0, float("inf"), float("-inf"), 2**40, 1e-300):
        e = Apply("neg", (Number(value),))
        back = decode(Apply, read_json(json.dumps(encode(e))))
        assert repr(back) == repr(e)
        assert type(back.args[0].value) is type(value) if isinstance(back.args[0], Number) else False


def test_a_long_expression_is_read() -> None:
    e: Expr = Number(1)
    for _ in range(100):
        e = Apply("neg", (e,))
    assert isinstance(e, Apply)
    assert decode(Apply, read_json(json.dumps(encode(e)))) == e


def test_the_error_names_the_place(attention: bytes) -> None:
    record = json.loads(attention)["plan"]
    record["boxes"][2]["axes"][0] = 5
    with pytest.raises(WeaveError, match=r"^plan\.boxes\[2\]\.axes\[0\]: 5 is not a text$"):
        decode(Plan, record, "plan")


# the check does not need what it checks

# records, the merge as boxes, formulas as text, and the ranges of element types
NO_PROOF = {"plan", "merge", "cascade", "formula", "formats", "equations", "cascade_rows", "caution", "given"}


def _modules(name: str, seen: set[str]) -> None:
    """Every module of ioweave that a module imports, at any depth; packages for what their own file holds are left."""
    path = ROOT.joinpath(*name.split(".")).with_suffix(".py")
    if name in seen or not path.exists():
        return
    seen.add(name)
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("ioweave"):
            _modules(node.module, seen)
            for alias in node.names:
                _modules(f"{node.module}.{alias.name}", seen)


def test_the_check_imports_no_prover() -> None:
    seen: set[str] = set()
    _modules("ioweave.derive.certificate.verify", seen)
    assert "ioweave.derive.certificate.laws" in seen
    assert {m.rsplit(".", 1)[1] for m in seen if m.startswith("ioweave.derive.streaming.")} <= NO_PROOF


def test_the_check_works_with_the_prover_taken_away(attention: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(*_: object, **__: object) -> None:
        raise AssertionError("the prover was asked")

    for module, name in (("repair", "repair"), ("verdict", "prove"), ("reduction", "reduce"), ("job", "Job")):
        monkeypatch.setattr(sys.modules[f"ioweave.derive.streaming.{module}"], name, gone)
    assert verify(from_bytes(attention)).failure == ""


# as a user types it


def test_write_and_verify(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = str(tmp_path / "out.json")
    arguments = ["stream", "attention", "x=512", "--axis", "x", "--direction", "backward"]
    assert run([*arguments, "--certificate", path]) == 0
    out, error = capsys.readouterr()
    assert "x as asked: backward" in out
    assert error == ""
    assert [p.name for p in tmp_path.iterdir()] == ["out.json"]
    record = json.loads(Path(path).read_text("utf-8"))
    assert (record["direction"], record["sizes"]["x"], record["verdict"]["direction"]) == ("backward", 512, "both")
    assert run(["stream", "--verify", path]) == 0
    out = capsys.readouterr().out
    assert "holds" in out
    assert "fresh trials" in out
    assert run(["stream", "--verify", path, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["streaming"][0]["verdict"] == "one-pass"
    assert all(row["passed"] and row["axes"] for row in report["check"])


def test_a_certificate_that_does_not_hold(capsys: pytest.CaptureFixture[str], tmp_path: Path, attention: bytes) -> None:
    record = json.loads(attention)
    drop_rescale(record)
    path = tmp_path / "out.json"
    path.write_text(json.dumps(record))
    assert run(["stream", "--verify", str(path)]) == 1
    out, error = capsys.readouterr()
    assert out.count("\n") == 1
    assert "does not hold" in out
    assert "P.sum" in out
    assert error == ""
    assert run(["stream", "--verify", str(path), "--json"]) == 1
    rows = json.loads(capsys.readouterr().out)["check"]
    assert not rows[-1]["passed"]
    assert "P.sum" in rows[-1]["because"]


def test_a_refusal_of_one_pass_has_a_certificate(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = str(tmp_path / "out.json")
    assert run(["stream", "column_sums", "--axis", "x", "--certificate", path]) == 0
    assert run(["stream", "--verify", path]) == 0
    assert "k-pass(2)" in capsys.readouterr().out


def test_unproved_writes_none_and_says_why(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dataclasses import replace

    from ioweave.derive.reporting import verdicts

    def unproved(*arguments: Any, **options: Any) -> Any:
        verdict = prove(*arguments, **options)
        return replace(verdict, verdict="unproved", refusal="the budget was spent")

    monkeypatch.setattr(verdicts, "prove", unproved)
    path = tmp_path / "out.json"
    assert run(["stream", "attention", "--axis", "x", "--certificate", str(path)]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "no certificate is written" in out
    assert "the budget was spent" in out
    assert not path.exists()


BAD = [
    (["stream", "attention", "--axis", "x", "--direction", "sideways"], "forward, backward or both"),
    (["stream", "attention", "--axis", "x", "--certificate", "out.txt"], ".json"),
    (["stream", "attention", "--axis", "x", "--certificate", "/nonexistent/out.json"], "/nonexistent"),
    (["stream", "attention", "--certificate", "out.json"], "--axis"),
    (["stream", "--verify", "/nonexistent.json"], "no such file"),
    (["stream", "--verify", "/"], "directory"),
    (["stream", "attention", "--verify", "out.json"], "--verify"),
    (["stream", "--verify", "out.json", "--certificate", "new.json"], "--verify"),
]


@pytest.mark.parametrize(("arguments", "words"), BAD, ids=[" ".join(a) for a, _ in BAD])
def test_bad_input(capsys: pytest.CaptureFixture[str], arguments: list[str], words: str) -> None:
    assert run(arguments) == 2
    out, error = capsys.readouterr()
    assert (out, error.count("\n")) == ("", 1)
    assert words in error


def test_an_axis_of_several_components(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = str(tmp_path / "out.json")
    assert run(["stream", "attention", "--axis", "d'", "--certificate", path]) == 0
    assert run(["stream", "--verify", path]) == 0
    assert "over d'" in capsys.readouterr().out
    assert run(["stream", "attention", "--axis", "d", "--certificate", path]) == 0
    assert "the certificate is of d" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("field", "forged"),
    [
        ("head", ["P.max = 0"]),
        ("body", ["O.acc = 7"]),
        ("tail", ["O = O.acc"]),
        ("merge", "P.max = 0"),
        ("commutative", False),
        ("safe", ["nothing overflows, ever"]),
        ("warnings", ["none"]),
        ("least", "3 passes are least"),
        ("kept", ["P.max[q]"]),
        ("cascade", []),
    ],
)
def test_texts_are_those_of_the_boxes(attention: bytes, field: str, forged: object) -> None:
    record = json.loads(attention)
    record["verdict"][field] = forged
    failure = verify(from_bytes(json.dumps(record).encode())).failure
    assert failure.startswith("texts"), failure
    assert field in failure
