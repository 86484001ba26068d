"""``forebay bench engine``: what the connector costs inside a real engine, and what a restored prefix saves.

``python -m forebay.engines.bench`` measures with the interpreter that runs it, which needs vLLM. Engines are processes
of their own (:mod:`.host`), told one after the other what to do (:mod:`.process`): they are compared in one run.
"""
