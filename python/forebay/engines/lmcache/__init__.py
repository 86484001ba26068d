"""Forebay behind LMCache: an L2 adapter of the type ``native_plugin``, class :class:`ForebayL2`.

    --l2-adapter '{"type": "native_plugin", "module_path": "forebay.engines.lmcache", "class_name": "ForebayL2",
                   "adapter_params": {"store": "file:/var/cache/forebay", "pool_bytes": "8GiB"}}'

**What a key becomes.** LMCache names a chunk ``model@kv_rank@group@chunk_hash[@salt]``; its hash already stands for
every token before. So each key is a sequence of its own in Forebay: the key's text is its namespace, its blocks are the
value's bytes, cut into ``block_bytes``. Two keys that differ anywhere share nothing, and no text of a key appears in a
name, a log or the store.

**A get** is a session that waits for the whole plan. What it delivers was read into Forebay's own slots and verified;
only then, and only whole values, are copied into LMCache's memory. **An exists** is a session over the value's first
block: what it says is there has been read and verified, and the get that follows finds that block in the pool.
**A set** is a put, and true when the store has it.

**Time.** Every batch ends within ``timeout_s`` of its submission, whatever the store does: keys without a result are
misses then. What the store still does goes on in Forebay's slots, under Forebay's fence.

Importing this module imports nothing of LMCache. docs/lmcache.md.
"""

from .client import ForebayL2
from .versions import SUPPORTED, UnsupportedVersionError, check_version

__all__ = ["SUPPORTED", "ForebayL2", "UnsupportedVersionError", "check_version"]
