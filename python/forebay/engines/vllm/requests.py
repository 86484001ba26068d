"""A request as the scheduler's side knows it: its tokens, namespace, session, hold and put."""

from __future__ import annotations

import array
import functools
import hashlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import forebay

from ..common.weights import adapter_revision
from .config import RequestOptions

_MEDIA_BIT = 0x80000000  # no tokenizer's id has it: text can never equal a picture


@functools.lru_cache(maxsize=1024)
def _adapter(number: int, name: str, path: str) -> str:
    """An adapter's name and what it is: its files, or the path where they are not on this machine.

    Args:
        number: vLLM's, another one when the adapter is loaded anew: then the files are looked at again.
        name: of the adapter.
        path: of its directory, or a name on the Hub.
    """
    del number
    return f"{name}\0{adapter_revision(Path(path)) or path}"


def namespace_of(request: Any, options: RequestOptions) -> list[tuple[str, str | bytes]]:
    """Namespace parts of a request: adapter (name and files), cache salt, tenant. Different ones share nothing."""
    parts: list[tuple[str, str | bytes]] = []
    lora = request.lora_request
    if lora is not None:
        number, path = int(getattr(lora, "lora_int_id", 0)), str(getattr(lora, "lora_path", ""))
        parts.append(("adapter", _adapter(number, str(lora.lora_name), path)))
    if request.cache_salt:
        parts.append(("salt", request.cache_salt))
    if options.tenant is not None:
        parts.append(("tenant", options.tenant))
    return parts


def _media_tokens(identifier: str, length: int) -> array.array[int]:
    """Stand-ins for the placeholders of one media item: ids that follow from its content hash."""
    stream = hashlib.shake_256(identifier.encode()).digest(4 * length)
    return array.array("I", (int.from_bytes(stream[i : i + 4], "little") | _MEDIA_BIT for i in range(0, 4 * length, 4)))


def tokens_of(request: Any, start: int = 0) -> array.array[int]:
    """A request's tokens from ``start`` on, with the content of media items in place of their placeholders.

    Returns:
        32-bit token ids; so a picture reaches the hash of the block where it begins, and of every one behind it.
    """
    tokens = array.array("I", request.all_token_ids[start:])
    for feature in request.mm_features or ():
        position = feature.mm_position
        first, last = max(position.offset, start), min(position.offset + position.length, start + len(tokens))
        if first < last:
            stand_ins = _media_tokens(str(feature.identifier), position.length)
            tokens[first - start : last - start] = stand_ins[first - position.offset : last - position.offset]
    return tokens


def is_served(request: Any) -> bool:
    """Whether a request's tokens say all about its KV cache, and are fixed when it arrives."""
    has_tokens = request.prompt_token_ids is not None and request.prompt_embeds is None
    return has_tokens and getattr(request, "prompt_is_token_ids", None) is None and not request.resumable


@dataclass(slots=True)
class Entry:
    """What the scheduler's side keeps for a request between ``on_new_request`` and ``request_finished``.

    Attributes:
        request: vLLM's; live.
        options: its own options.
        sequence: of its tokens so far.
        length: tokens in the sequence.
        session: its prefetch, until the answer was taken.
        demanded: the scheduler has asked for it.
        answer: the session's last snapshot.
        seen: the snapshot of the last question that had no answer.
        lost: the session went with its server, unanswered.
        hold: what was matched and is not loaded yet.
        computed: the engine's own tokens at the last question.
        matched: tokens given to the engine beyond its own, of the first match.
        failed: blocks of failed loads; then the request's next answers are a miss.
        put: of its last range, kept through the prefill.
        staging: puts whose copies are under way.
        saved: blocks that need no more saving.
        save: whether its blocks are kept.
    """

    request: Any
    options: RequestOptions
    sequence: forebay.Sequence
    length: int
    session: forebay.Session | None = None
    demanded: bool = False
    answer: forebay.Snapshot | None = None
    seen: forebay.Snapshot | None = None
    lost: bool = False
    hold: forebay.Hold | None = None
    computed: int = 0
    matched: int = 0
    failed: int = 0
    put: forebay.Put | None = None
    staging: set[int] = field(default_factory=set)
    saved: int = 0
    save: bool = True

    def grow(self) -> None:
        """Takes over the tokens that the request got since."""
        if self.request.num_tokens > self.length:
            self.sequence.append(tokens_of(self.request, self.length))
            self.length = self.request.num_tokens

    def drop_session(self) -> None:
        """Ends the prefetch: an abort, if it is not answered."""
        session, self.session = self.session, None
        if session is not None:
            session.release()

    def drop_hold(self) -> None:
        """Lets go of a match that is not loaded."""
        hold, self.hold = self.hold, None
        if hold is not None:
            hold.release()

    def drop_put(self) -> None:
        """Lets go of the prefill's pin."""
        put, self.put = self.put, None
        if put is not None:
            put.release()
