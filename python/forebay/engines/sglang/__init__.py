"""Forebay in SGLang: ``--radix-cache-backend forebay`` (docs/sglang.md). Importing it imports nothing of SGLang."""

from __future__ import annotations

from .versions import SUPPORTED, UnsupportedVersionError, check_version

__all__ = ["SUPPORTED", "UnsupportedVersionError", "check_version"]
