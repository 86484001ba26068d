"""Configuration from an engine's."""
