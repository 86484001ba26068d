"""The ``model`` section that a Forebay server needs for a model in vLLM.

::

    python -m forebay.engines.vllm.section --model DIRECTORY --block-size 32 >model.yaml

Takes vLLM's own options; those that change the KV cache (dtype, block size, tensor parallel size, …) have to be the
engine's. Starts an engine with made-up weights, so that vLLM itself says what its KV cache looks like, and prints YAML.
Run it where the engine runs: the kernels of another machine may order the bytes of a block in another way.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

_QUICK = {"load_format": "dummy", "enforce_eager": True}
"""What makes the start short and changes nothing of the section."""


def section_of(arguments: Any) -> dict[str, Any]:
    """Forebay's ``model`` section for an engine.

    Args:
        arguments: vLLM's ``EngineArgs``; those that only make a start longer are replaced.

    Raises:
        forebay.engines.common.model.UnsupportedModelError: a configuration that the connector cannot serve.
    """
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    from vllm.config import KVTransferConfig  # type: ignore[import-not-found, unused-ignore]
    from vllm.v1.engine.llm_engine import LLMEngine  # type: ignore[import-not-found, unused-ignore]

    for name, value in _QUICK.items():
        setattr(arguments, name, value)
    arguments.kv_transfer_config = KVTransferConfig(
        kv_connector="ForebayConnector",
        kv_connector_module_path="forebay.engines.vllm",
        kv_role="kv_both",
        kv_load_failure_policy="recompute",
        kv_connector_extra_config={"store": "mem", "config": {"pool.bytes": "1GiB", "log.level": "warn"}},
    )
    engine = LLMEngine.from_engine_args(arguments)
    try:
        section: dict[str, Any] = engine.engine_core.engine_core.scheduler.connector._scheduler.section()
    finally:
        engine.engine_core.shutdown()
    return section


def as_yaml(section: Mapping[str, Any]) -> str:
    """The section as it stands in a configuration file."""
    lines = [f"  {key}: {json.dumps(value)}\n" for key, value in section.items() if key != "groups"]
    groups = [
        "    - " + "\n      ".join(f"{key}: {json.dumps(value)}" for key, value in group.items()) + "\n"
        for group in section["groups"]
    ]
    return "".join(["model:\n", *lines, "  groups:\n", *groups])


def main(words: Sequence[str] | None = None) -> None:
    """The command."""
    os.environ.setdefault("VLLM_LOGGING_STREAM", "ext://sys.stderr")
    from vllm.engine.arg_utils import EngineArgs  # type: ignore[import-not-found, unused-ignore]
    from vllm.utils.argparse_utils import FlexibleArgumentParser  # type: ignore[import-not-found, unused-ignore]

    parser = EngineArgs.add_cli_args(FlexibleArgumentParser(description=__doc__))
    section = section_of(EngineArgs.from_cli_args(parser.parse_args(words)))
    sys.stdout.write(as_yaml(section))


if __name__ == "__main__":
    main()
