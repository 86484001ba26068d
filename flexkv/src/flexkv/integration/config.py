"""Configuration of a server, as SGLang's integration asks for it."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any

from forebay.engines.sglang.versions import check_version

from flexkv._forebay.places import register_path
from flexkv._forebay.settings import read_flexkv, read_own, read_settings
from flexkv.common.config import CacheConfig, ModelConfig, RankInfo

# SGLang's arguments that must have one value, and that value.
_ACCEPTED = (
    ("pp_size", 1),
    ("dp_size", 1),
    ("nnodes", 1),
    ("attn_cp_size", 1),
    ("enable_dp_attention", False),
)


def _version() -> str:
    import sglang  # type: ignore[import-not-found, unused-ignore]

    return str(sglang.__version__)


def _refuse(server_args: Any) -> None:
    for name, accepted in _ACCEPTED:
        value = getattr(server_args, name, accepted)
        if value is not None and value != accepted:
            raise ValueError(f"{name} is {value!r}; accepted with Forebay behind the name flexkv: {accepted}")
    dtype = str(getattr(server_args, "kv_cache_dtype", "auto"))
    if dtype.startswith(("fp4", "int4")):
        raise ValueError(f"kv_cache_dtype is {dtype!r}, which has scales beside the values; accepted: without")


def _is_mla(engine: Any) -> bool:
    architecture = getattr(engine, "attention_arch", None)
    return str(getattr(architecture, "name", architecture)).upper() == "MLA"


@dataclass
class FlexKVConfig:
    """Made from the environment, completed from SGLang's arguments; on every rank.

    Attributes:
        server_recv_port: path that names this server's sockets, or "": from SGLang's process.
        gpu_register_port: socket at which ranks register; the leader listens.
        model_config: see there.
        cache_config: see there.
    """

    server_recv_port: str = ""
    gpu_register_port: str = ""
    model_config: ModelConfig = field(default_factory=ModelConfig)
    cache_config: CacheConfig = field(default_factory=CacheConfig)

    @classmethod
    def from_env(cls) -> FlexKVConfig:
        """The environment's part; what is wrong in it is said before anything is made.

        Raises:
            ValueError: ``FOREBAY_SGLANG`` or FlexKV's file cannot be read.
        """
        read_own(os.environ)
        read_flexkv(os.environ)
        return cls(server_recv_port=os.environ.get("FLEXKV_SERVER_RECV_PORT", ""))

    def post_init_from_sglang_config(
        self,
        sglang_config: Any,
        server_args: Any,
        page_size: int,
        tp_rank: int = 0,
        pp_rank: int = 0,
        dp_rank: int = 0,
        attn_cp_rank: int = 0,
    ) -> RankInfo:
        """The engine's part.

        Args:
            sglang_config: SGLang's ``ModelConfig``.
            server_args: SGLang's ``ServerArgs``.
            page_size: tokens of a page.
            tp_rank: of this process.
            pp_rank: 0.
            dp_rank: 0.
            attn_cp_rank: 0.

        Raises:
            UnsupportedVersionError: another release of SGLang than those that work; the message lists them.
            ValueError: a parallelism or a setting that is not accepted.
        """
        version = _version()
        check_version(version)
        _refuse(server_args)
        ranks = int(getattr(server_args, "tp_size", 1))
        settings = read_settings(server_args=server_args)
        layers = int(sglang_config.num_hidden_layers)
        self.model_config = ModelConfig(
            num_layers=layers,
            use_mla=_is_mla(sglang_config),
            tp_size=ranks,
            attn_tp_size=ranks,
            tp_size_per_node=ranks,
            tokens_per_block=page_size,
            engine=sglang_config,
            arguments=server_args,
            version=version,
            settings=settings,
        )
        self.cache_config = CacheConfig(tokens_per_block=page_size, enable_remote=settings.prefetch)
        name = f"{os.getppid()}-{getattr(server_args, 'port', 0)}"
        self.gpu_register_port = register_path(self.server_recv_port, name)
        return RankInfo(
            model_config=self.model_config,
            tp_rank=tp_rank,
            pp_rank=pp_rank,
            attn_tp_rank=tp_rank,
            attn_cp_rank=attn_cp_rank,
            dp_client_id=dp_rank,
            local_rank=tp_rank,
            tp_rank_per_node=tp_rank,
            num_layers_per_pp_stage=layers,
        )
