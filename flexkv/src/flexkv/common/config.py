"""What SGLang's integration reads of the configuration: parallelism, this rank's place, capacities."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass
class ModelConfig:
    """The model and how it is spread. Only what is served is accepted: one machine, tensor parallelism.

    Attributes:
        num_layers: of the model.
        use_mla: K and V are one tensor.
        tp_size: ranks.
        pp_size: stages; 1.
        attn_tp_size: ranks that share attention's heads; ``tp_size``.
        attn_cp_size: context parallelism; 1.
        dp_size: replicas; 1.
        nnodes: machines; 1.
        tp_size_per_node: ``tp_size``.
        master_host: of the first machine; not used.
        master_ports: likewise.
        tokens_per_block: tokens of a page.
        engine: SGLang's own model configuration.
        arguments: SGLang's ``ServerArgs``.
        version: of SGLang.
        settings: of Forebay.
    """

    num_layers: int = 0
    use_mla: bool = False
    tp_size: int = 1
    pp_size: int = 1
    attn_tp_size: int = 1
    attn_cp_size: int = 1
    dp_size: int = 1
    nnodes: int = 1
    tp_size_per_node: int = 1
    master_host: str = "localhost"
    master_ports: tuple[str, ...] = ()
    tokens_per_block: int = 16
    engine: Any = field(default=None, repr=False)
    arguments: Any = field(default=None, repr=False)
    version: str = field(default="", repr=False)
    settings: Any = field(default=None, repr=False)


@dataclass
class CacheConfig:
    """Capacities. The pool is sized in bytes by Forebay's configuration, so counts of blocks are 0: nothing to align.

    Attributes:
        tokens_per_block: tokens of a page.
        num_cpu_blocks: 0.
        num_ssd_blocks: 0.
        num_remote_blocks: 0.
        enable_ssd: False: a store is a remote one.
        enable_remote: there is a store: SGLang's integration asks for prefetches.
        enable_kv_sharing: False.
    """

    tokens_per_block: int = 16
    num_cpu_blocks: int = 0
    num_ssd_blocks: int = 0
    num_remote_blocks: int = 0
    enable_ssd: bool = False
    enable_remote: bool = False
    enable_kv_sharing: bool = False


@dataclass(frozen=True)
class RankInfo:
    """Where this process stands.

    Attributes:
        model_config: shared by all ranks.
        tp_rank: of all.
        pp_rank: 0.
        attn_tp_rank: ``tp_rank``.
        attn_cp_rank: 0.
        dp_client_id: 0.
        node_rank: 0.
        local_rank: number of the rank on its machine.
        tp_rank_per_node: likewise.
        pp_size_per_node: 1.
        num_layers_per_pp_stage: layers of this rank.
    """

    model_config: ModelConfig = field(repr=False)
    tp_rank: int = 0
    pp_rank: int = 0
    attn_tp_rank: int = 0
    attn_cp_rank: int = 0
    dp_client_id: int = 0
    node_rank: int = 0
    local_rank: int = 0
    tp_rank_per_node: int = 0
    pp_size_per_node: int = 1
    num_layers_per_pp_stage: int = 0
