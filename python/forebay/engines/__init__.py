"""Connectors that put Forebay into inference engines. Nothing of an engine is imported before it is asked for."""
