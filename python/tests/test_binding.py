"""The binding against the header: nothing is missing, nothing differs."""

from __future__ import annotations

import enum
import importlib.util
import inspect
import re
import shutil
from pathlib import Path
from types import ModuleType
from typing import Any

import forebay
import pytest
from forebay import _names, _quick
from forebay._forebay import ffi, lib

ROOT = Path(__file__).resolve().parents[2]
HEADER = ROOT / "include" / "forebay" / "forebay.h"

# Called by nobody here: counting references is the package's own matter, names are enumerations, release is abort.
NOT_CALLED = {
    "fby_seq_ref", "fby_put_release", "fby_state_name", "fby_outcome_name", "fby_reason_name", "fby_policy_name",
    "fby_stop_mode_name",
}  # fmt: skip


def functions() -> set[str]:
    text = re.sub(r"/\*.*?\*/", "", HEADER.read_text(encoding="utf-8"), flags=re.DOTALL)
    return set(re.findall(r"^[a-z][\w \*]*?\b(fby_\w+)\(", text, re.MULTILINE))


def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_extension", ROOT / "python" / "make_extension.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_function_of_the_header_is_there_and_called() -> None:
    names = functions()
    assert len(names) >= 59
    assert {name for name in dir(lib) if name.startswith("fby_")} == names
    package = Path(inspect.getfile(forebay)).parent
    source = "\n".join(path.read_text(encoding="utf-8") for path in package.glob("*.py"))
    called = set(re.findall(r"lib\.(fby_\w+)", source)) | set(re.findall(r'address\("(fby_\w+)"\)', source))
    assert names - called == NOT_CALLED


def test_the_declarations_are_those_of_this_header() -> None:
    import cffi

    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    fresh = cffi.FFI()
    fresh.cdef(generator().declarations(HEADER, [compiler]))
    for kind in ("snapshot", "session_options", "stats", "health", "model", "event", "put_result", "close_report"):
        mine = [name for name, _ in ffi.typeof(f"fby_{kind}_t").fields]
        theirs = [name for name, _ in fresh.typeof(f"fby_{kind}_t").fields]
        assert mine == theirs, kind


def test_snapshots_have_every_field() -> None:
    wanted = [name for name, _ in ffi.typeof("fby_snapshot_t").fields if name != "size"]
    fields = [name for name in wanted if hasattr(_quick.Snapshot, name)]
    assert fields == wanted
    assert _quick.Snapshot.n_fields == len(wanted)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("members", "name_of", "count"),
    [
        (forebay.State, lib.fby_state_name, lib.FBY_STATE_COUNT),
        (forebay.Outcome, lib.fby_outcome_name, lib.FBY_OUTCOME_COUNT),
        (forebay.Reason, lib.fby_reason_name, lib.FBY_REASON_COUNT),
        (forebay.Policy, lib.fby_policy_name, lib.FBY_POLICY_COUNT),
        (forebay.StopMode, lib.fby_stop_mode_name, lib.FBY_STOP_MODE_COUNT),
    ],
)
def test_enumerations_are_the_tables(members: type[enum.Enum], name_of: Any, count: int) -> None:
    assert [str(member.value) for member in members] == [ffi.string(name_of(i)).decode() for i in range(count)]
    assert [str(member) for member in members] == [member.value for member in members]


def test_numbers_are_those_of_the_header() -> None:
    assert {kind.name: kind.value for kind in forebay.EventType} == {
        name.removeprefix("FBY_EVENT_"): getattr(lib, name) for name in dir(lib) if name.startswith("FBY_EVENT_")
    }
    assert {
        name.removeprefix("FBY_NS_").lower(): getattr(lib, name) for name in dir(lib) if name.startswith("FBY_NS_")
    } == _names.NAMESPACE_NUMBERS
    for name in dir(lib):
        if name.startswith("FBY_E_"):
            assert forebay.errname(getattr(lib, name)) == name.removeprefix("FBY_E_")


def test_the_version_is_the_library_s() -> None:
    from importlib.metadata import version

    assert forebay.__version__ == version("forebay")


def test_everything_public_has_a_docstring() -> None:
    for name in forebay.__all__:
        thing = getattr(forebay, name)
        if inspect.isclass(thing) or inspect.isfunction(thing):
            assert inspect.getdoc(thing), name
