"""The binding against the headers: nothing is missing, nothing differs."""

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
HEADERS = [ROOT / "include" / "forebay" / f"{name}.h" for name in ("forebay", "device", "rank", "group", "server")]

# Called by nobody here: counting references is the package's own matter, names are enumerations, release is abort.
NOT_CALLED = {
    "fby_seq_ref", "fby_put_release", "fby_state_name", "fby_outcome_name", "fby_reason_name", "fby_policy_name",
    "fby_stop_mode_name", "fby_layout_name", "fby_decision_name", "fby_message_name",
}  # fmt: skip


def functions() -> set[str]:
    text = "\n".join(header.read_text(encoding="utf-8") for header in HEADERS)
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)
    return set(re.findall(r"^[a-z][\w \*]*?\b(fby_\w+)\(", text, re.MULTILINE))


def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_extension", ROOT / "python" / "make_extension.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_function_of_the_headers_is_there_and_called() -> None:
    names = functions()
    assert len(names) >= 115
    assert {name for name in dir(lib) if name.startswith("fby_")} == names
    package = Path(inspect.getfile(forebay)).parent
    source = "\n".join(path.read_text(encoding="utf-8") for path in package.glob("*.py"))
    called = set(re.findall(r"lib\.(fby_\w+)", source)) | set(re.findall(r'address\("(fby_\w+)"\)', source))
    assert names - called == NOT_CALLED


def test_the_declarations_are_those_of_these_headers() -> None:
    import cffi

    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    fresh, text = cffi.FFI(), generator().declarations(HEADERS, [compiler])
    fresh.cdef(text)
    structs = re.findall(r"typedef struct \w+ *\{[^;]*;.*?\} (fby_\w+);", text, re.DOTALL)
    assert {"fby_snapshot_t", "fby_pool_t", "fby_ranks_t", "fby_server_info_t"} <= set(structs)
    for kind in structs:
        mine = [name for name, _ in ffi.typeof(kind).fields]
        theirs = [name for name, _ in fresh.typeof(kind).fields]
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
        (forebay.LayoutKind, lib.fby_layout_name, lib.FBY_LAYOUT_COUNT),
        (forebay.DecisionKind, lib.fby_decision_name, None),
        (forebay.MessageType, lib.fby_message_name, None),
    ],
)
def test_enumerations_are_the_tables(members: type[enum.Enum], name_of: Any, count: int | None) -> None:
    first, end = (0, count) if count is not None else (1, len(members) + 1)  # those without a count begin with 1
    names = [ffi.string(name_of(i)).decode() for i in range(first, end + 1)]
    assert [str(member.value) for member in members] + ["unknown"] == names
    assert [str(member) for member in members] == [member.value for member in members]


def test_numbers_are_those_of_the_header() -> None:
    assert {kind.name: kind.value for kind in forebay.EventType} == {
        name.removeprefix("FBY_EVENT_"): getattr(lib, name) for name in dir(lib) if name.startswith("FBY_EVENT_")
    }
    assert {
        name.removeprefix("FBY_NS_").lower(): getattr(lib, name) for name in dir(lib) if name.startswith("FBY_NS_")
    } == _names.NAMESPACE_NUMBERS
    assert (forebay.NO_PLACE, lib.FBY_NO_RANK, lib.FBY_MESSAGE_BYTES) == (2**64 - 1, 2**32 - 1, 16 << 20)
    for name in dir(lib):
        if name.startswith("FBY_E_"):
            assert forebay.errname(getattr(lib, name)) == name.removeprefix("FBY_E_")


def test_the_version_is_the_library_s() -> None:
    from importlib.metadata import version

    assert forebay.__version__ == version("forebay")


def test_a_connection_is_made_as_the_header_says() -> None:
    text = (ROOT / "include" / "forebay" / "server.h").read_text(encoding="utf-8")
    found = re.search(r"sizeof\(fby_connect_options_t\), 0, ([\d.]+), ([\d.]+), NULL", text)
    assert found is not None
    defaults = inspect.signature(forebay.connect).parameters
    assert defaults["call_timeout_s"].default == float(found.group(1))
    assert defaults["reconnect_s"].default == float(found.group(2))


def test_everything_public_has_a_docstring() -> None:
    for name in forebay.__all__:
        thing = getattr(forebay, name)
        if inspect.isclass(thing) or inspect.isfunction(thing):
            assert inspect.getdoc(thing), name
        if inspect.isclass(thing):
            for member, value in vars(thing).items():
                if not member.startswith("_") and (inspect.isfunction(value) or isinstance(value, property)):
                    assert inspect.getdoc(value), f"{name}.{member}"
