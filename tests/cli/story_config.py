#!/usr/bin/env python3
"""Configuration from the shell: a file is checked, every effective value is shown with its origin, the document agrees."""
import json
import re

from story import ROOT, Story, main

GOOD = """\
model:
  id: org/model
  revision: main
  kv_dtype: bf16
  block_tokens: 16
  layer_set: all
  layout: layer-first
  weights_epoch: 0
  tp_size: 1
  cp_size: 1
  pp_size: 1
  groups:
    - {name: kv, payload_bytes: 64KiB, rule: all}
"""


class Config(Story):
    def test_a_right_file(self):
        path = self.file("f.yaml", GOOD)
        self.assertEqual(self.succeeds("config", "check", path), f"{path}: right\n")
        self.assertEqual(json.loads(self.succeeds("config", "check", path, "--json")),
                         {"file": path, "ok": True, "error": None, "notes": []})

    def test_settings_that_do_nothing_are_noted(self):
        path = self.file("f.yaml", GOOD + "prefetch: {policy: timeout}\nserver: {mode: \"0660\"}\n")
        out = self.succeeds("config", "check", path)
        self.assertEqual(out, f"{path}: right\n"
                              "note: prefetch.enabled is false: sessions under this prefetch.policy will be refused with NOT_ENABLED\n"
                              "note: server.listen is off: server.mode does nothing\n")

    def test_a_wrong_value_is_named_with_its_line(self):
        path = self.file("f.yaml", GOOD + "prefetch:\n  policy: eager\n")
        message = (f'{path}:15: prefetch.policy: "eager" is not known; accepted: one of wait_complete, timeout, best_effort, '
                   "break_even")
        self.fails(1, f"forebay config check: {message}\n", "config", "check", path)
        out = self.fails(1, f"forebay config check: {message}\n", "config", "check", path, "--json")
        self.assertEqual(json.loads(out), {"file": path, "ok": False, "error": message, "notes": []})

    def test_missing_fields_and_contradictions_are_named(self):
        path = self.file("f.yaml", GOOD.replace("  revision: main\n", "").replace("  tp_size: 1\n", ""))
        self.fails(1, "forebay config check: missing: model.revision, model.tp_size; accepted: a value for each, since all of "
                      "them enter the fingerprint\n", "config", "check", path)
        path = self.file("g.yaml", GOOD + "prefetch.policy: break_even\n")
        self.fails(1, f"forebay config check: {path}:14: prefetch.policy: break_even needs prefetch.recompute_tokens_per_s, which "
                      "is unset; accepted: a number above 0 there\n", "config", "check", path)

    def test_a_file_that_is_not_there(self):
        self.fails(1, "forebay config check: nowhere.yaml: cannot be read: No such file or directory\n", "config", "check",
                   "nowhere.yaml")

    def test_the_environment_counts_and_is_checked(self):
        self.fails(1, 'forebay config show: environment: unknown variable "FOREBAY_PREFETCH_POLCY"; did you mean '
                      "FOREBAY_PREFETCH_POLICY?\n", "config", "show", environment={"FOREBAY_PREFETCH_POLCY": "timeout"})

    def test_show_tells_value_and_origin(self):
        path = self.file("f.json", '{"prefetch": {"policy": "best_effort"}, "secret": "do not tell"}')
        environment = {"FOREBAY_PREFETCH_POLICY": "timeout", "FOREBAY_POOL_BYTES": "64MiB"}
        text = self.succeeds("config", "show", path, environment=environment)
        rows = {line.split()[0]: line.split()[1:] for line in text.splitlines()}
        self.assertEqual(rows["key"], ["value", "origin"])
        self.assertEqual(rows["prefetch.policy"], ["best_effort", "file"])
        self.assertEqual(rows["pool.bytes"], ["64MiB", "environment"])
        self.assertEqual(rows["pool.max_hold_bytes"], ["32MiB", "default"])
        self.assertEqual(rows["secret"], ["(set)", "file"])
        self.assertNotIn("do not tell", text)

        shown = json.loads(self.succeeds("config", "show", path, "--json", environment=environment))
        self.assertEqual(shown["prefetch.policy"], {"value": "best_effort", "origin": "file"})
        self.assertEqual(list(shown), [line.split()[0] for line in text.splitlines()[1:]])

    def test_which_setting_wins(self):
        """Three sources by four values: the effective value and where it came from."""
        for policy in ("wait_complete", "timeout", "best_effort", "break_even"):
            path = self.file("f.yaml", f"prefetch.policy: {policy}\n")
            sources = [
                (("config", "show", path, "--json"), {"FOREBAY_PREFETCH_POLICY": "best_effort"}, policy, "file"),
                (("config", "show", "--json"), {"FOREBAY_PREFETCH_POLICY": policy}, policy, "environment"),
                (("config", "show", "--json"), {}, "wait_complete", "default"),
            ]
            for arguments, environment, value, origin in sources:
                shown = json.loads(self.succeeds(*arguments, environment=environment))
                self.assertEqual(shown["prefetch.policy"], {"value": value, "origin": origin}, policy)

    def test_the_document_lists_every_key_with_its_default(self):
        document = (ROOT / "docs/configuration.md").read_text()
        rows = re.findall(r"^\| `([a-z_.]+)` \| .* \| (.*) \| .* \|$", document, re.M)
        shown = json.loads(self.succeeds("config", "show", "--json"))
        self.assertEqual([key for key, _ in rows], list(shown))
        for key, default in rows:
            if re.fullmatch(r"`.*`", default):
                self.assertEqual(default.strip("`"), shown[key]["value"], key)
            elif default == "required":
                self.assertEqual(shown[key]["value"], "unset", key)
            else:
                self.assertIn(key, ("prefetch.quarantine_limit", "pool.max_hold_bytes", "pool.write_pinned_bytes"))

    def test_the_example_of_the_document_is_right(self):
        document = (ROOT / "docs/configuration.md").read_text()
        for number, example in enumerate(re.findall(r"^```yaml\n(.*?)^```", document, re.M | re.S)):
            path = self.file(f"example{number}.yaml", example)
            self.assertEqual(self.succeeds("config", "check", path), f"{path}: right\n")


if __name__ == "__main__":
    main()
