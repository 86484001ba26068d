/* Files of every wrong kind: the message names the place, the key, the value and what is accepted; nothing changes. */
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "runtime/config.h"
#include "unit.h"

static fby_config_t *config_new(void)
{
    fby_config_t *config = NULL;
    assert_int_equal(fby_config_create(&config), 0);
    return config;
}

static const char *value_of(fby_config_t *config, const char *key)
{
    const char *value = NULL;
    assert_int_equal(fby_config_get(config, key, &value, NULL), 0);
    return value;
}

static void parse_good(fby_config_t *config, const char *text)
{
    int status = fby_config_parse(config, text, strlen(text), "t.yaml");
    if (status != 0) {
        fail_msg("refused: %s", fby_last_error());
    }
}

static void yaml_and_json_say_the_same(void **state)
{
    static const char *const texts[] = {
        "# a comment\n"
        "hash: xxh3\n"
        "prefetch:\n  enabled: true\n  policy: timeout\n  max_reserved_bytes: 64MiB\n  timeout_budget_s: 1.5\n"
        "model:\n  groups:\n  - {name: kv, payload_bytes: 64KiB, rule: all}\n"
        "  - name: state\n    payload_bytes: 4096\n    rule: trailing(1)\n"
        "store:\n  options:\n    directory: /var/cache/x y\n    capacity: 10GiB\n",
        "{\"hash\": \"xxh3\", \"prefetch\": {\"enabled\": true, \"policy\": \"timeout\",\n"
        "\t\"max_reserved_bytes\": \"64MiB\", \"timeout_budget_s\":1.5},\n"
        "\"model\": {\"groups\": [{\"name\": \"kv\", \"payload_bytes\": \"64KiB\", \"rule\": \"all\"},\n"
        "{\"name\": \"state\", \"payload_bytes\": 4096, \"rule\": \"trailing(1)\"}]},\n"
        "\"store\": {\"options\": {\"directory\": \"\\/var\\/cache\\/x y\", \"capacity\": \"10GiB\"}}}",
        "hash: xxh3\nprefetch.enabled: true\nprefetch.policy: timeout\nprefetch.max_reserved_bytes: 67108864\n"
        "prefetch.timeout_budget_s: 1.50\nmodel.groups: kv:64KiB:all,state:4KiB:trailing(1)\n"
        "store.options: {directory: /var/cache/x y, capacity: 10GiB}\n",
    };
    for (size_t i = 0; i < FBY_ARRAY_LEN(texts); i++) {
        fby_config_t *config = config_new();
        parse_good(config, texts[i]);
        assert_string_equal(value_of(config, "hash"), "xxh3");
        assert_string_equal(value_of(config, "prefetch.enabled"), "true");
        assert_string_equal(value_of(config, "prefetch.policy"), "timeout");
        assert_string_equal(value_of(config, "prefetch.max_reserved_bytes"), "64MiB");
        assert_string_equal(value_of(config, "prefetch.timeout_budget_s"), "1.5");
        assert_string_equal(value_of(config, "model.groups"), "kv:64KiB:all,state:4KiB:trailing(1)");
        assert_string_equal(value_of(config, "store.options.directory"), "/var/cache/x y");
        assert_string_equal(value_of(config, "store.options.capacity"), "10GiB");
        fby_config_free(config);
    }
}

static void empty_texts_and_empty_sections_set_nothing(void **state)
{
    static const char *const texts[] = {"", "# nothing\n", "---\n", "{}", "prefetch:\nstore:\n  options:\n", "~\n"};
    for (size_t i = 0; i < FBY_ARRAY_LEN(texts); i++) {
        fby_config_t *config = config_new();
        const char *origin;
        parse_good(config, texts[i]);
        assert_int_equal(fby_config_get(config, "prefetch.policy", NULL, &origin), 0);
        assert_string_equal(origin, "default");
        fby_config_free(config);
    }
}

typedef struct bad_text {
    const char *text, *message;
} bad_text_t;

static const bad_text_t bad_texts[] = {
    /* keys */
    {"prefetch:\n  polcy: timeout\n", "t.yaml:2: unknown key \"prefetch.polcy\"; did you mean prefetch.policy?"},
    {"policy: timeout\n", "t.yaml:1: unknown key \"policy\"; did you mean prefetch.policy?"},
    {"prefetch.timeout_max: 30\n", "t.yaml:1: unknown key \"prefetch.timeout_max\": the unit belongs to the name; did "
                                   "you mean prefetch.timeout_max_s?"},
    {"prefetch:\n  timeout_max_ms: 30\n", "t.yaml:2: unknown key \"prefetch.timeout_max_ms\": the unit belongs to the "
                                          "name; did you mean prefetch.timeout_max_s?"},
    {"prefetch:\n  max_reserved: 1GiB\n",
     "t.yaml:2: unknown key \"prefetch.max_reserved\": the unit belongs to the name; did you mean "
     "prefetch.max_reserved_bytes?"},
    {"qwertyuiop: 1\n", "t.yaml:1: unknown key \"qwertyuiop\"; accepted: the keys that `forebay config show` prints"},
    {"qwertyuiop: {a: 1}\n",
     "t.yaml:1: unknown key \"qwertyuiop\"; accepted: the keys that `forebay config show` prints"},
    {"hash: sha256\nhash: sha256\n", "t.yaml:2: \"hash\" stands here for the second time; accepted: each key once"},
    {"prefetch: {policy: timeout}\nprefetch.policy: timeout\n",
     "t.yaml:2: \"prefetch.policy\" stands here for the second time; accepted: each key once"},
    {"prefetch: {policy: timeout}\nprefetch: {enabled: true}\n",
     "t.yaml:2: \"prefetch\" stands here for the second time; accepted: each key once"},
    {"{\"hash\": \"xxh3\",\n\"hash\": \"xxh3\"}",
     "t.yaml:2: \"hash\" stands here for the second time; accepted: each key once"},
    {"store: {options: {a: 1, a: 2}}\n",
     "t.yaml:1: \"store.options.a\" stands here for the second time; accepted: each key once"},
    {"? [a, b]\n: 1\n", "t.yaml:1: has a key that is not a text"},
    {"<<: {hash: xxh3}\n", "t.yaml:1: unknown key \"<<\"; accepted: the keys that `forebay config show` prints"},

    /* types and values */
    {"prefetch:\n  chunk_max_blocks: -3\n",
     "t.yaml:2: prefetch.chunk_max_blocks: \"-3\" is negative; accepted: a whole number from 1 to 65536"},
    {"prefetch:\n  chunk_max_blocks: \"3\"\n",
     "t.yaml:2: prefetch.chunk_max_blocks: \"3\" is text in quotes; accepted: a whole number from 1 to 65536"},
    {"prefetch:\n  chunk_max_blocks: [3]\n",
     "t.yaml:2: prefetch.chunk_max_blocks: is a list; accepted: a whole number from 1 to 65536"},
    {"prefetch:\n  chunk_max_blocks: {a: 3}\n",
     "t.yaml:2: prefetch.chunk_max_blocks: is a mapping; accepted: a whole number from 1 to 65536"},
    {"prefetch:\n  chunk_max_blocks:\n",
     "t.yaml:2: prefetch.chunk_max_blocks: \"\" is empty; accepted: a whole number from 1 to 65536"},
    {"prefetch:\n  chunk_max_blocks: null\n",
     "t.yaml:2: prefetch.chunk_max_blocks: \"null\" is empty; accepted: a whole number from 1 to 65536"},
    {"prefetch:\n  timeout_base_s: .nan\n",
     "t.yaml:2: prefetch.timeout_base_s: \".nan\" is not a number; accepted: seconds from 0 to 1e9, such as 2.5"},
    {"prefetch:\n  timeout_base_s: -.inf\n",
     "t.yaml:2: prefetch.timeout_base_s: \"-.inf\" is infinite; accepted: seconds from 0 to 1e9, such as 2.5"},
    {"prefetch:\n  enabled: \"true\"\n",
     "t.yaml:2: prefetch.enabled: \"true\" is text in quotes; accepted: true or false"},
    {"prefetch:\n  policy: 3\n",
     "t.yaml:2: prefetch.policy: \"3\" is not known; accepted: one of wait_complete, timeout, best_effort, break_even"},
    {"model:\n  revision: 1.10\n",
     "t.yaml:2: model.revision: \"1.10\" is a number; accepted: text of 1 to 127 bytes without control characters"},
    {"model: {id: true}\n",
     "t.yaml:1: model.id: \"true\" is a truth value; accepted: text of 1 to 255 bytes without control characters"},
    {"{\"model\": {\"id\": 7}}",
     "t.yaml:1: model.id: \"7\" is a number; accepted: text of 1 to 255 bytes without control characters"},
    {"model: {id: \"a\\0b\"}\n", "t.yaml:1: \"model.id\" has a NUL character in its value"},
    {"secret: 12345\n", "t.yaml:1: secret: (a hidden value) is a number; accepted: 1 to 64 bytes of text without "
                        "control characters, or unset"},
    {"pool: {bytes: 99999999999TiB}\n", "t.yaml:1: pool.bytes: \"99999999999TiB\" is too large; accepted: a size from "
                                        "4KiB to 1024TiB in B, KiB, MiB, GiB or "
                                        "TiB, such as 512MiB"},
    {"prefetch: 5\n", "t.yaml:1: \"prefetch\" is a single value; accepted: a mapping of keys"},
    {"prefetch: [policy]\n", "t.yaml:1: \"prefetch\" is a list; accepted: a mapping of keys"},
    {"store: {options: {a: [1, 2]}}\n",
     "t.yaml:1: \"store.options.a\" is not a single value; accepted: one line of text"},
    {"store: {options: {a: }}\n", "t.yaml:1: \"store.options.a\" has no value; accepted: one line of text"},
    {"store: {options: {a b: 1}}\n", "t.yaml:1: \"store.options.a b\" is not the name of an option; accepted: "
                                     "store.options. and 1 to 63 letters, digits, "
                                     "'_', '-', '.'"},

    /* groups */
    {"model:\n  groups:\n  - {name: kv, payload_bytes: 0, rule: all}\n",
     "t.yaml:3: \"model.groups[0].payload_bytes\" \"0\" is too small; accepted: a size from 1B to 1GiB, such as 64KiB"},
    {"model:\n  groups:\n  - {name: kv, payload_bytes: 1, rule: all}\n  - {name: s, payload_bytes: 1, rule: "
     "trailing(0)}\n",
     "t.yaml:4: \"model.groups[1].rule\" \"trailing(0)\" has a rule trailing(n) whose n is not a whole number from 1 "
     "to "
     "1048576; accepted: all or trailing(n)"},
    {"model: {groups: [{name: kv, payload_bytes: 1}]}\n",
     "t.yaml:1: \"model.groups[0]\" lacks a field; accepted: name, payload_bytes and rule of one group"},
    {"model: {groups: [{name: kv, bytes: 1, rule: all}]}\n",
     "t.yaml:1: \"model.groups[0].bytes\" is not known; accepted: name, payload_bytes, rule"},
    {"model: {groups: [kv]}\n",
     "t.yaml:1: \"model.groups[0]\" is not a mapping; accepted: name, payload_bytes and rule of one group"},
    {"model: {groups: [{name: [kv]}]}\n", "t.yaml:1: \"model.groups[0].name\" is not a single value"},
    {"model: {groups: {name: kv}}\n", "t.yaml:1: model.groups: is a mapping; accepted: 1 to 8 groups, each with name, "
                                      "payload_bytes (1B to 1GiB) and rule "
                                      "(all or trailing(n)), as a list of mappings or as name:payload_bytes:rule,..."},
    {"pool: {group_bytes: {kv: lots}}\n", "t.yaml:1: pool.group_bytes: \"kv=lots\" has a size that is not a whole "
                                          "number of a unit; accepted: a size for each "
                                          "group of model.groups, as a mapping or as name=size,..., or unset"},

    /* the text itself */
    {"- a\n- b\n", "t.yaml:1: the text is a single value or a list; accepted: a mapping of keys"},
    {"just words\n", "t.yaml:1: the text is a single value or a list; accepted: a mapping of keys"},
    {"hash: sha256\n---\nhash: xxh3\n", "t.yaml:2: a second document begins here; accepted: one document"},
    {"prefetch: &a {enabled: true}\n", "t.yaml:1: anchors, aliases and tags are not accepted; write the value out"},
    {"hash: *a\n", "t.yaml:1: anchors, aliases and tags are not accepted; write the value out"},
    {"hash: !!str sha256\n", "t.yaml:1: anchors, aliases and tags are not accepted; write the value out"},
    {"store: {\n", "t.yaml:2: not valid YAML or JSON: while parsing a flow node, did not find expected node content"},
    {"{\"hash\": \"sha256\"",
     "t.yaml:2: not valid YAML or JSON: while parsing a flow mapping, did not find expected ',' or '}'"},
    {"hash: \"sha\xff\"\n",
     "t.yaml: not a text at byte 10: invalid leading UTF-8 octet; accepted: YAML or JSON in UTF-8"},
    {"hash: \x01\n",
     "t.yaml: not a text at byte 6: control characters are not allowed; accepted: YAML or JSON in UTF-8"},
};

static void every_wrong_text_is_refused_with_place_key_value_and_what_is_accepted(void **state)
{
    for (size_t i = 0; i < FBY_ARRAY_LEN(bad_texts); i++) {
        fby_config_t *config = config_new();
        int status = fby_config_parse(config, bad_texts[i].text, strlen(bad_texts[i].text), "t.yaml");
        if (status != FBY_E_CONFIG || strcmp(fby_last_error(), bad_texts[i].message) != 0) {
            fail_msg("%s\ngot %d: %s\nexpected: %s", bad_texts[i].text, status, fby_last_error(), bad_texts[i].message);
        }
        fby_config_free(config);
    }
}

static void a_refused_text_changes_nothing(void **state)
{
    fby_config_t *config = config_new();
    const char *origin, *text = "hash: xxh3\nstore: {options: {a: b}}\nprefetch: {policy: never}\n";
    assert_int_equal(fby_config_parse(config, text, strlen(text), "t.yaml"), FBY_E_CONFIG);
    assert_string_equal(value_of(config, "hash"), "sha256");
    assert_int_equal(fby_config_get(config, "hash", NULL, &origin), 0);
    assert_string_equal(origin, "default");
    assert_int_equal(fby_config_get(config, "store.options.a", NULL, NULL), -ENOENT);
    fby_config_free(config);
}

static void hostile_texts_cost_nothing(void **state)
{
    enum { DEPTH = 200000 };
    char *deep = malloc(DEPTH + 32);
    fby_config_t *config = config_new();
    assert_non_null(deep);

    memset(deep, '[', DEPTH);
    assert_int_equal(fby_config_parse(config, deep, DEPTH, "deep"), FBY_E_CONFIG);
    memset(deep, '{', DEPTH);
    assert_int_equal(fby_config_parse(config, deep, DEPTH, "deep"), FBY_E_CONFIG);
    int head = snprintf(deep, DEPTH, "model: {groups: ");
    memset(deep + head, '[', (size_t)(DEPTH - head));
    assert_int_equal(fby_config_parse(config, deep, DEPTH, "deep"), FBY_E_CONFIG);
    assert_string_equal(
        fby_last_error(),
        "deep:1: \"model.groups[0]\" is not a mapping; accepted: name, payload_bytes and rule of one group");
    assert_int_equal(fby_config_parse(config, deep, (1 << 20) + 1, "big"), FBY_E_CONFIG);
    assert_string_equal(fby_last_error(),
                        "big: 1048577 bytes are too many for a configuration; accepted: at most 1MiB");

    static const char bomb[] = "a: &a [x, x]\nb: &b [*a, *a]\nc: &c [*b, *b]\n";
    assert_int_equal(fby_config_parse(config, bomb, sizeof(bomb) - 1, "bomb"), FBY_E_CONFIG);
    assert_string_equal(fby_last_error(), "bomb:1: anchors, aliases and tags are not accepted; write the value out");
    free(deep);
    fby_config_free(config);
}

static void a_file_is_read_and_named(void **state)
{
    char path[] = "/tmp/forebay-config-XXXXXX", expected[128];
    int fd = mkstemp(path);
    fby_config_t *config = config_new();
    assert_true(fd >= 0);
    assert_int_equal(write(fd, "hash: xxh3\n", 11), 11);
    assert_int_equal(fby_config_load(config, path), 0);
    assert_string_equal(value_of(config, "hash"), "xxh3");

    assert_int_equal(write(fd, "pool: 3\n", 8), 8);
    assert_int_equal(fby_config_load(config, path), FBY_E_CONFIG);
    snprintf(expected, sizeof(expected), "%s:2: \"pool\" is a single value; accepted: a mapping of keys", path);
    assert_string_equal(fby_last_error(), expected);

    close(fd);
    unlink(path);
    assert_int_equal(fby_config_load(config, path), -ENOENT);
    snprintf(expected, sizeof(expected), "%s: cannot be read: No such file or directory", path);
    assert_string_equal(fby_last_error(), expected);
    assert_int_equal(fby_config_load(config, "/tmp"), -EISDIR);
    fby_config_free(config);
}

int main(void)
{
    const struct CMUnitTest all[] = {
        cmocka_unit_test(yaml_and_json_say_the_same),
        cmocka_unit_test(empty_texts_and_empty_sections_set_nothing),
        cmocka_unit_test(every_wrong_text_is_refused_with_place_key_value_and_what_is_accepted),
        cmocka_unit_test(a_refused_text_changes_nothing),
        cmocka_unit_test(hostile_texts_cost_nothing),
        cmocka_unit_test(a_file_is_read_and_named),
    };
    return cmocka_run_group_tests(all, NULL, NULL);
}
