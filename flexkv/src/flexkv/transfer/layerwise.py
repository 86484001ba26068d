"""Where the engine sends its eventfds for layer-wise loads."""

from __future__ import annotations

import os
from typing import Any

from flexkv._forebay.places import own_directory
from flexkv._forebay.refusal import raise_pending


def build_layerwise_eventfd_socket_path(dp_client_id: int = 0, pp_rank: int = 0, model_config: Any = None) -> str:
    """The socket's path: ``FLEXKV_LAYERWISE_EVENTFD_SOCKET``, or one of this server's.

    SGLang's integration calls it once on every rank, right behind the registration, and does not repeat it: a
    registration that was refused is raised here.

    Args:
        dp_client_id: number of the replica.
        pp_rank: 0.
        model_config: not needed.

    Raises:
        RuntimeError: this rank's registration was refused; the message says why.
    """
    del model_config
    raise_pending()
    given = os.environ.get("FLEXKV_LAYERWISE_EVENTFD_SOCKET")
    path = given or str(own_directory() / f"layers-{os.getpid()}")
    return path if (dp_client_id, pp_rank) == (0, 0) else f"{path}-{dp_client_id}-{pp_rank}"
