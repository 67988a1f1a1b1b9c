"""Text to syntax tree, with Python's own `ast`; nothing is ever evaluated."""

from __future__ import annotations

import ast
import warnings
from dataclasses import dataclass

from ioweave.diagrams.diagram import Position
from ioweave.diagrams.errors import WeaveError
from ioweave.diagrams.notation.nearest import nearest
from ioweave.diagrams.notation.syntax import (
    Assign,
    Binary,
    Block,
    Call,
    Chain,
    Declare,
    Entry,
    Keyword,
    Literal,
    Name,
    Node,
    Out,
    Statement,
    Subscript,
    Text,
    Unary,
)

DEPTH = 100  # nesting of one expression: every later stage recurses over it
LENGTH = 1 << 20

_BINARY: dict[type[ast.operator], tuple[str, str]] = {
    ast.Add: ("add", "+"),
    ast.Sub: ("sub", "-"),
    ast.Mult: ("mul", "*"),
    ast.Div: ("div", "/"),
    ast.FloorDiv: ("floordiv", "//"),
    ast.Mod: ("mod", "%"),
    ast.Pow: ("pow", "**"),
    ast.BitAnd: ("and", "&"),
    ast.BitOr: ("or", "|"),
}
_COMPARE: dict[type[ast.cmpop], str] = {
    ast.Lt: "lt",
    ast.LtE: "le",
    ast.Gt: "gt",
    ast.GtE: "ge",
    ast.Eq: "eq",
    ast.NotEq: "ne",
}
_FACTS = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "ne": "!="}
_BLOCK = ("group", "stream", "hold", "place", "buffers")
_EXPRESSIONS: dict[type[ast.expr], str] = {
    ast.IfExp: "`a if c else b` is written where(c, a, b)",
    ast.Lambda: "there are no functions of one's own; write the formula out",
    ast.Slice: "an index is one place of the axis, not a slice; write the index, e.g. X[i + 1]",
    ast.List: "a list is not part of the notation; write an input",
    ast.Dict: "a dictionary stands only in with level(...)",
    ast.Set: "a set is not part of the notation",
    ast.Starred: "`*` before a name is not part of the notation; write the names out",
    ast.NamedExpr: "`:=` is not part of the notation; give the value its own line",
    ast.JoinedStr: "a string is not part of a formula",
    ast.Tuple: "a tuple stands only in an index or in `q, x = 4, 8`",
    ast.Await: "`await` is not part of the notation",
}


def parse_text(text: str, file: str = "<text>") -> Text:
    """The syntax tree of a text. Raises `WeaveError` with the place of the first mistake."""
    start = Position(file, 1, 1)
    text = text.removeprefix("\ufeff")
    if "\0" in text:
        raise WeaveError("the text holds NUL bytes; a diagram is plain UTF-8 text", start)
    if not text.strip():
        raise WeaveError("the text is empty; write inputs and at least one line, e.g. `Y[i] = 2 * X[i]`", start)
    if len(text) > LENGTH:
        raise WeaveError(f"the text has {len(text)} characters; a diagram has at most {LENGTH}", start)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Python's opinions on its own programs do not apply here
            readable, options = _bracket_options(text)
            tree = ast.parse(readable)
    except SyntaxError as error:
        raise WeaveError(_syntax(error), Position(file, error.lineno or 1, max(error.offset or 1, 1))) from None
    except (RecursionError, MemoryError):
        raise WeaveError(f"an expression is nested too deeply; split it over lines of at most {DEPTH}", start) from None
    except ValueError:
        raise WeaveError("the text has characters that are not UTF-8; a diagram is plain UTF-8 text", start) from None
    return _Parser(file, tuple(text.splitlines()), options).text(tree)


def _bracket_options(text: str) -> tuple[str, frozenset[tuple[int, int]]]:
    """``scan[t, reversed=True]`` is no Python: each ``=`` that stands in a square bracket becomes ``:``.

    Also their places, as line and column from 1.
    """
    found: list[str] = []
    places: list[tuple[int, int]] = []
    open_brackets: list[str] = []
    quote = ""
    line, start, i = 1, 0, 0
    while i < len(text):
        c = text[i]
        skip = 1
        if quote:
            if c == "\\":
                skip = 2
            elif text.startswith(quote, i):
                skip, quote = len(quote), ""
        elif c in "\"'":
            quote = c * 3 if text.startswith(c * 3, i) else c
            skip = len(quote)
        elif c == "#":
            end = text.find("\n", i)
            skip = (end if end >= 0 else len(text)) - i
        elif c in "([{":
            open_brackets.append(c)
        elif c in ")]}" and open_brackets:
            open_brackets.pop()
        elif c == "=" and open_brackets and open_brackets[-1] == "[":
            alone = text[i - 1] not in "=<>!:" and text[i + 1 : i + 2] != "="
            if alone:
                places.append((line, i - start + 1))
                found.append(":")
                i += 1
                continue
        taken = text[i : i + skip]
        found.append(taken)
        newlines = taken.count("\n")
        if newlines:
            line += newlines
            start = i + taken.rfind("\n") + 1
            if len(quote) == 1:
                quote = ""  # a string of one quote ends with its line
        i += skip
    return "".join(found), frozenset(places)


def _syntax(error: SyntaxError) -> str:
    """A sentence for what Python's parser says."""
    said = (error.msg or "invalid syntax").split("\n")[0]
    if "Exceeds the limit" in said:
        return "this number has thousands of digits; sizes go up to 2**40"
    if isinstance(error, IndentationError):
        return f"{said}; only the lines inside `with level(...):` are indented"
    if "never closed" in said or "unmatched" in said or "does not match" in said:
        return f"{said}; balance the brackets"
    if "too many nested" in said:
        return f"{said}; an expression is at most {DEPTH} deep: split it over several lines"
    said = said.replace(" Maybe you meant '==' or ':=' instead of '='?", "").rstrip(".")
    return (
        f"{said}; a statement is a size `q = 64`, an input `X[q, d]: fp16`, a line `Y[q] = sum[d](X[q, d])`, "
        "`out(Y)`, or `with level(...):`"
    )


@dataclass(frozen=True)
class _Parser:
    file: str
    lines: tuple[str, ...]
    options: frozenset[tuple[int, int]] = frozenset()  # where a bracket had `=`

    def at(self, node: ast.expr | ast.stmt | ast.keyword) -> Position:
        """The place of a node; ast counts columns in UTF-8 bytes from 0, people in characters from 1."""
        line = self.lines[node.lineno - 1] if node.lineno <= len(self.lines) else ""
        before = line.encode("utf-8", "replace")[: node.col_offset]
        return Position(self.file, node.lineno, len(before.decode("utf-8", "replace")) + 1)

    def text(self, tree: ast.Module) -> Text:
        body = tree.body
        doc = ""
        if body and isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant):
            value = body[0].value.value
            if isinstance(value, str):
                doc, body = value.strip(), body[1:]
        if not body:
            raise WeaveError(
                "nothing is computed; write inputs and at least one line, e.g. `Y[i] = 2 * X[i]`",
                Position(self.file, 1, 1),
            )
        return Text(self.file, doc, self.body(body))

    def body(self, body: list[ast.stmt]) -> tuple[Statement, ...]:
        return tuple(s for statement in body for s in self.statement(statement))

    def statement(self, s: ast.stmt) -> tuple[Statement, ...]:
        match s:
            case ast.Assign(targets=[target], value=value):
                return self.assign(s, target, value)
            case ast.Assign(targets=[_, *_]):
                raise WeaveError(
                    "one name at a time: write the value once and tie the other name to it, as in `x = q`", self.at(s)
                )
            case ast.AnnAssign(target=target, annotation=annotation, value=annotated):
                return (self.annotated(s, target, annotation, annotated),)
            case ast.Expr(value=ast.Call(func=ast.Name(id="out")) as call):
                return (self.out(call),)
            case ast.With(items=[ast.withitem(context_expr=ast.Call() as call, optional_vars=None)], body=inner):
                return (self.block(call, inner),)
            case ast.With():
                raise WeaveError('a block is written `with level("smem", group={q: 128}):`', self.at(s))
            case ast.Expr(value=ast.Subscript() as read):
                raise WeaveError(
                    f"this line declares nothing; an input has a dtype, `{ast.unparse(read)}: fp16`", self.at(s)
                )
            case ast.Expr(value=ast.Constant(value=str())):
                raise WeaveError("a string stands only at the top, as the description; write a # comment", self.at(s))
            case ast.Expr():
                raise WeaveError("this value has no name; write `Y[i] = ...` or `out(Y)`", self.at(s))
            case ast.AugAssign():
                raise WeaveError("every array is made once; give the new value a name of its own", self.at(s))
            case _:
                raise WeaveError(
                    f"`{type(s).__name__.lower()}` is not part of the notation; it has sizes, inputs, lines, out(...) "
                    "and with level(...)",
                    self.at(s),
                )

    def assign(self, s: ast.Assign, target: ast.expr, value: ast.expr) -> tuple[Statement, ...]:
        if isinstance(target, ast.Tuple | ast.List):
            if not all(isinstance(t, ast.Name) for t in target.elts):
                raise WeaveError("one line at a time: only sizes are given together, `q, x = 4, 8`", self.at(s))
            given = value.elts if isinstance(value, ast.Tuple | ast.List) else [value]
            if len(given) != len(target.elts):
                raise WeaveError(
                    f"{len(target.elts)} names but {len(given)} values; write one value for each name", self.at(s)
                )
            return tuple(
                Assign(self.name(t).name, None, None, self.expression(v), self.at(t))
                for t, v in zip(target.elts, given, strict=True)
            )
        name, axes = self.target(target)
        return (Assign(name, axes, None, self.expression(value), self.at(target)),)

    def annotated(
        self, s: ast.AnnAssign, target: ast.expr, annotation: ast.expr, value: ast.expr | None
    ) -> Assign | Declare:
        name, axes = self.target(target)
        dtype = annotation.left if isinstance(annotation, ast.Compare) else annotation
        if not isinstance(dtype, ast.Name):
            raise WeaveError("after the colon comes a dtype, as in `X[q, d]: fp16`", self.at(annotation))
        typed = Name(dtype.id, self.at(dtype))
        if value is not None:
            if isinstance(annotation, ast.Compare):
                raise WeaveError(
                    f"a fact is declared of an input, not of a line; write `{name}[...]: {dtype.id} = ...`",
                    self.at(annotation),
                )
            return Assign(name, axes, typed, self.expression(value), self.at(target))
        fact: tuple[str, Node] | None = None
        if isinstance(annotation, ast.Compare):
            op = _COMPARE.get(type(annotation.ops[0]), "")
            if len(annotation.ops) != 1 or op not in _FACTS:
                raise WeaveError("a fact is one comparison with a number, as in `fp32 > 0`", self.at(annotation))
            fact = (_FACTS[op], self.expression(annotation.comparators[0]))
        return Declare(name, axes or (), typed, fact, self.at(target))

    def target(self, target: ast.expr) -> tuple[str, tuple[Node, ...] | None]:
        """The name on the left side and its bracket, if there is one."""
        if isinstance(target, ast.Subscript):
            return self.name(target.value).name, self.indices(target.slice)
        return self.name(target).name, None

    def name(self, node: ast.expr) -> Name:
        parts: list[str] = []
        inner = node
        while isinstance(inner, ast.Attribute):
            parts.append(inner.attr)
            inner = inner.value
        if not isinstance(inner, ast.Name):
            raise WeaveError("a name is expected here, as in `S[q, x]` or `P.max[q]`", self.at(node))
        return Name(".".join([inner.id, *reversed(parts)]), self.at(node))

    def indices(self, node: ast.expr) -> tuple[Node, ...]:
        parts = node.elts if isinstance(node, ast.Tuple) else [node]
        return tuple(self.expression(p) for p in parts)

    def out(self, call: ast.Call) -> Out:
        if not call.args or call.keywords:
            raise WeaveError("out(...) names lines whose values leave, as in `out(S)`", self.at(call))
        return Out(tuple(self.name(a) for a in call.args), self.at(call))

    def block(self, call: ast.Call, body: list[ast.stmt]) -> Block:
        function = call.func
        if not isinstance(function, ast.Name) or function.id != "level":
            raise WeaveError('a block is written `with level("smem", group={q: 128}):`', self.at(call))
        if len(call.args) != 1 or not isinstance(call.args[0], ast.Constant) or not isinstance(call.args[0].value, str):
            raise WeaveError('a block begins with its level in quotes, as in `level("smem")`', self.at(call))
        level = call.args[0].value
        entries: dict[str, tuple[Entry, ...]] = {}
        buffers: Node | None = None
        for k in call.keywords:
            if k.arg is None or k.arg not in _BLOCK:
                raise WeaveError(
                    f"`{k.arg or '**'}` is not an option of level(...){nearest(k.arg or '', _BLOCK)}; "
                    f"it has {', '.join(_BLOCK)}",
                    self.at(k),
                )
            if k.arg in entries or (k.arg == "buffers" and buffers is not None):
                raise WeaveError(f"`{k.arg}` is given twice; keep one", self.at(k))
            if k.arg == "buffers":
                buffers = self.expression(k.value)
            else:
                entries[k.arg] = self.entries(k.arg, k.value)
        return Block(
            level,
            entries.get("group", ()),
            entries.get("stream", ()),
            entries.get("hold", ()),
            entries.get("place", ()),
            buffers,
            self.body(body),
            self.at(call),
        )

    def is_option(self, node: ast.expr) -> bool:
        """Whether a part of a bracket was written ``name=value``."""
        if not (isinstance(node, ast.Slice) and isinstance(node.lower, ast.Name) and node.upper is not None):
            return False
        before, after = self.at(node.lower), self.at(node.upper)
        first, last = (before.line, before.column), (after.line, after.column)
        return node.step is None and any(first < place < last for place in self.options)

    def option(self, node: ast.expr) -> Keyword:
        assert isinstance(node, ast.Slice)
        assert isinstance(node.lower, ast.Name)
        assert node.upper is not None
        return Keyword(node.lower.id, self.expression(node.upper), self.at(node.lower))

    def entries(self, option: str, node: ast.expr) -> tuple[Entry, ...]:
        sample = {"hold": "hold={K: 0}", "place": 'place={P: "smem"}'}.get(option, f"{option}={{q: 128}}")
        if not isinstance(node, ast.Dict):
            raise WeaveError(f"`{option}` maps names to values, as in `{sample}`", self.at(node))
        found: dict[str, Entry] = {}
        for key, value in zip(node.keys, node.values, strict=True):
            if key is None:
                raise WeaveError(f"`**` is not part of the notation; write `{sample}`", self.at(value))
            name = self.name(key)
            if name.name in found:
                raise WeaveError(f"`{name.name}` is given twice in `{option}`; keep one", name.position)
            text = value.value if isinstance(value, ast.Constant) and isinstance(value.value, str) else None
            if (option == "place") != (text is not None):
                raise WeaveError(f"`{option}` is written `{sample}`", self.at(value))
            found[name.name] = Entry(name.name, self.expression(value) if text is None else text, name.position)
        return tuple(found.values())

    def expression(self, node: ast.expr, depth: int = 0) -> Node:
        if depth > DEPTH:
            raise WeaveError(
                f"the expression is nested more than {DEPTH} deep; split it over several lines", self.at(node)
            )
        at, below = self.at(node), depth + 1
        match node:
            case ast.Constant(value=bool() | int() | float() as value):
                return Literal(value, at)
            case ast.Constant(value=value):
                raise WeaveError(f"{value!r} is not a number; a formula has numbers, names and reads", at)
            case ast.Name() | ast.Attribute():
                return self.name(node)
            case ast.Subscript(value=array, slice=index):
                parts = index.elts if isinstance(index, ast.Tuple) else [index]
                return Subscript(self.name(array).name, tuple(self.expression(p, below) for p in parts), at)
            case ast.UnaryOp(op=ast.UAdd(), operand=operand):
                return self.expression(operand, below)
            case ast.UnaryOp(op=op, operand=operand):
                return Unary("neg" if isinstance(op, ast.USub) else "not", self.expression(operand, below), at)
            case ast.BinOp(op=operator, left=left, right=right):
                return self.binary(node, operator, left, right, below)
            case ast.BoolOp(op=boolean, values=values):
                symbol = "and" if isinstance(boolean, ast.And) else "or"
                first, *rest = (self.expression(v, below) for v in values)
                for r in rest:
                    first = Binary(symbol, symbol, first, r, at)
                return first
            case ast.Compare(left=left, ops=ops, comparators=rest_of):
                for o in ops:
                    if type(o) not in _COMPARE:
                        raise WeaveError("comparisons are < <= > >= == !=; `in` and `is` are not", at)
                operands = tuple(self.expression(v, below) for v in (left, *rest_of))
                return Chain(tuple(_COMPARE[type(o)] for o in ops), operands, at)
            case ast.Call():
                return self.call(node, below)
            case ast.Slice(lower=ast.Name(id=name) as lower) if self.is_option(node):
                raise WeaveError(
                    f"`{name}=` is an option, and an index has none; options stand with an operator, as in "
                    "`scan[t, reversed=True](...)`",
                    self.at(lower),
                )
            case _:
                said = _EXPRESSIONS.get(type(node), f"`{type(node).__name__.lower()}` is not part of the notation")
                raise WeaveError(said, at)

    def binary(self, node: ast.expr, op: ast.operator, left: ast.expr, right: ast.expr, depth: int) -> Node:
        if isinstance(op, ast.MatMult):
            raise WeaveError("`@` is written with its axes, as in `sum[k](A[i, k] * B[k, j])`", self.at(node))
        if type(op) not in _BINARY:
            raise WeaveError(
                f"unknown operator in `{ast.unparse(node)}`; the operators are + - * / ** // % & | ~", self.at(node)
            )
        name, symbol = _BINARY[type(op)]
        return Binary(name, symbol, self.expression(left, depth), self.expression(right, depth), self.at(node))

    def call(self, node: ast.Call, depth: int) -> Call:
        function: ast.expr = node.func
        axes: tuple[Node, ...] | None = None
        keywords: list[Keyword] = []
        if isinstance(function, ast.Subscript):
            parts = function.slice.elts if isinstance(function.slice, ast.Tuple) else [function.slice]
            given = [p for p in parts if self.is_option(p)]
            axes = tuple(self.expression(p) for p in parts if p not in given)
            keywords.extend(self.option(p) for p in given)
            function = function.value
        name = self.name(function).name
        for k in node.keywords:
            if k.arg is None:
                raise WeaveError("`**` is not part of the notation; write the options out", self.at(k))
            if any(k.arg == other.name for other in keywords):
                raise WeaveError(f"`{k.arg}` is given twice; keep one", self.at(k))
            keywords.append(Keyword(k.arg, self.expression(k.value, depth), self.at(k)))
        return Call(name, axes, tuple(self.expression(a, depth) for a in node.args), tuple(keywords), self.at(node))
