"""The shape of the code: imports go one way, modules are small, a start is light, nothing is left undone."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import networkx as nx
import pytest

from ioweave.diagrams.operators import COMPOSITES

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "ioweave"
MODULES = sorted(PACKAGE.rglob("*.py"))
PACKAGES = ["diagrams", "hierarchy", "derive", "render", "cli"]
# within derive/: a stage may use those of a smaller number
STAGES = {
    "streaming": 0,
    "rewrites": 1,
    "program": 2,
    "counting": 3,
    "bounds": 4,
    "execution": 4,
    "evidence": 5,
    "certificate": 6,
    "changes": 7,
    "search": 8,
}
HEAVY = ("numpy", "scipy", "sympy", "networkx", "ziamath", "resvg_py", "graphviz")


def _id(path: Path) -> str:
    return str(path.relative_to(ROOT))


def _module(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _imports(path: Path, *, top_level: bool) -> set[str]:
    """Modules of ioweave that a module imports; inside functions and for types too, unless ``top_level``."""
    tree = ast.parse(path.read_text("utf-8"))
    found: set[str] = set()
    nodes = tree.body if top_level else ast.walk(tree)
    for node in nodes:
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            assert node.level == 0, f"{path}:{node.lineno}: imports are absolute"
            found.update({node.module, *(f"{node.module}.{alias.name}" for alias in node.names)})
    known = {_module(other) for other in MODULES}
    return {name for name in found if name in known}


def _place(module: str) -> tuple[int, int]:
    """Rank of the package, and of the stage within derive; modules above the packages come last."""
    parts = module.split(".")
    if len(parts) < 2 or parts[1] not in PACKAGES:
        return (len(PACKAGES), 0)
    stage = STAGES.get(parts[2], len(STAGES)) if parts[1] == "derive" and len(parts) > 2 else 0
    return (PACKAGES.index(parts[1]), stage)


@pytest.mark.parametrize("path", MODULES, ids=_id)
def test_imports_go_one_way(path: Path) -> None:
    module = _module(path)
    package, stage = _place(module)
    for other in _imports(path, top_level=False) - {"ioweave"}:
        other_package, other_stage = _place(other)
        assert other_package <= package, f"{module} imports {other}"
        if package == other_package == PACKAGES.index("derive"):
            own = module.split(".")[2:3] == other.split(".")[2:3]
            assert own or other_stage < stage, f"{module} imports {other}"


def test_imports_have_no_cycle() -> None:
    graph = nx.DiGraph()
    for path in MODULES:
        graph.add_edges_from((_module(path), other) for other in _imports(path, top_level=True))
    # a package's __init__ gathers what its modules define, and an import of a module runs it first
    packages = [_module(path) for path in MODULES if path.name == "__init__.py"]
    graph.remove_nodes_from([name for name in packages if name in graph])
    assert list(nx.simple_cycles(graph)) == []


@pytest.mark.parametrize("path", MODULES, ids=_id)
def test_a_module_is_small_and_says_what_it_is(path: Path) -> None:
    text = path.read_text("utf-8")
    assert text.count("\n") < 500
    if text.strip():
        assert ast.get_docstring(ast.parse(text)), "a module begins with a docstring"


@pytest.mark.parametrize("path", MODULES, ids=_id)
def test_public_things_say_what_they_are(path: Path) -> None:
    for node in ast.parse(path.read_text("utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
            assert ast.get_docstring(node), f"{_id(path)}:{node.lineno}: {node.name} has no docstring"


@pytest.mark.parametrize("path", [p for p in MODULES if "derive" in p.parts], ids=_id)
def test_nothing_is_recognised_by_name(path: Path) -> None:
    names = {f.stem for f in (PACKAGE / "diagrams" / "catalogue").glob("*.weave")} | COMPOSITES
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Compare | ast.MatchValue):
            strings = {n.value for n in ast.walk(node) if isinstance(n, ast.Constant)}
            assert not strings & names, f"{_id(path)}:{node.lineno}"


@pytest.mark.parametrize("arguments", [["--help"], ["list", "machines"]], ids=" ".join)
def test_a_start_is_light(arguments: list[str]) -> None:
    code = (
        "import sys\nfrom ioweave.cli import main\n"
        f"sys.argv = ['ioweave', *{arguments}]\n"
        "try:\n    main()\nexcept SystemExit as stop:\n    assert not stop.code, stop.code\n"
        f"print(sorted(set({HEAVY}) & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stderr.strip() == "[]"


def _texts() -> list[Path]:
    kept = {".py", ".md", ".toml", ".weave", ".sh", ".yml", ""}
    hidden = (".git", ".venv", "site", "build", "dist")
    return [
        path
        for path in ROOT.rglob("*")
        if path.is_file()
        and path.suffix in kept
        and path.relative_to(ROOT).parts[0] not in hidden
        and not any(part.startswith(".") and part != ".ci" for part in path.relative_to(ROOT).parts[:-1])
        and path != Path(__file__)
    ]


def test_nothing_is_left_undone_or_silenced() -> None:
    marks = r"\b(TODO|FIXME|XXX|HACK)\b|NotImplementedError|# type: ignore|# noqa|pragma: no cover"
    for path in _texts():
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
            assert not re.search(marks, line), f"{_id(path)}:{number}: {line.strip()}"
