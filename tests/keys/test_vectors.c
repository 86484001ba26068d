/* test_vectors.c - the published vectors, line by line; the file's head says what a line is. */
#include "unit.h"

#include <pthread.h>

#include "keys/keys.h"

enum { MOST_PARTS = 4, MOST_PART_BYTES = 2048, MOST_TOKENS = 4096, MOST_BLOCKS = 64, THREADS = 64 };

static const char *vectors_path;

typedef struct vector {
    int line;
    fby_hash_kind_t kind;
    uint32_t block_tokens;
    uint8_t secret[64], fingerprint[16];
    size_t secret_length;
    fby_ns_part_t parts[MOST_PARTS];
    uint8_t part_bytes[MOST_PARTS][MOST_PART_BYTES];
    size_t part_count;
    uint32_t tokens[MOST_TOKENS];
    size_t token_count;
    char root[64], hashes[MOST_BLOCKS * 33 + 1], key[64];
} vector_t;

static size_t unhex(const char *text, uint8_t *out, size_t capacity)
{
    size_t n = 0;
    if (strcmp(text, "-") == 0) {
        return 0;
    }
    for (; text[0] != '\0'; text += 2, n++) {
        unsigned value;
        assert_int_equal(sscanf(text, "%2x", &value), 1);
        assert_true(n < capacity);
        out[n] = (uint8_t)value;
    }
    return n;
}

static const char *hex_of(const fby_hash_t *hash)
{
    static _Thread_local char text[FBY_KEY_TEXT_BYTES];
    fby_key_text(hash, 0, text);
    text[32] = '\0';
    return text;
}

static void parse_namespace(vector_t *v, char *text)
{
    static const char *const types[] = {"", "adapter", "salt", "tenant", "text"};
    char *rest = text, *part;
    v->part_count = 0;
    while (strcmp(text, "-") != 0 && (part = strsep(&rest, ",")) != NULL) {
        size_t i = v->part_count++;
        assert_true(i < MOST_PARTS);
        const char *type = strsep(&part, ":");
        v->parts[i] = (fby_ns_part_t){.data = v->part_bytes[i]};
        for (size_t t = 1; t < FBY_ARRAY_LEN(types); t++) {
            if (strcmp(type, types[t]) == 0) {
                v->parts[i].type = (fby_ns_type_t)t;
            }
        }
        v->parts[i].length = unhex(part, v->part_bytes[i], MOST_PART_BYTES);
    }
}

static void parse_tokens(vector_t *v, char *text)
{
    char *rest = text, *piece;
    v->token_count = 0;
    while (strcmp(text, "-") != 0 && (piece = strsep(&rest, ",")) != NULL) {
        unsigned start = 0, count = 1;
        assert_true(sscanf(piece, "%u*%u", &start, &count) >= 1);
        assert_true(v->token_count + count <= MOST_TOKENS);
        for (unsigned i = 0; i < count; i++) {
            v->tokens[v->token_count++] = start + i;
        }
    }
}

/* Fields: hash block_tokens secret fingerprint namespace tokens root hashes key. */
static void parse_chain(vector_t *v, char *line)
{
    char *field[9];
    for (size_t i = 0; i < FBY_ARRAY_LEN(field); i++) {
        field[i] = strsep(&line, " ");
        assert_non_null(field[i]);
    }
    v->kind = strcmp(field[0], "xxh3") == 0 ? FBY_HASH_XXH3 : FBY_HASH_SHA256;
    v->block_tokens = (uint32_t)strtoul(field[1], NULL, 10);
    v->secret_length = unhex(field[2], v->secret, sizeof(v->secret));
    assert_int_equal(unhex(field[3], v->fingerprint, sizeof(v->fingerprint)), 16);
    parse_namespace(v, field[4]);
    parse_tokens(v, field[5]);
    snprintf(v->root, sizeof(v->root), "%s", field[6]);
    snprintf(v->hashes, sizeof(v->hashes), "%s", field[7]);
    snprintf(v->key, sizeof(v->key), "%s", field[8]);
}

/* The vector computed by the library: in one call, so that each block continues from the one before. */
static bool vector_holds(const vector_t *v)
{
    fby_hasher_t hasher;
    fby_hash_t root, hashes[MOST_BLOCKS];
    char joined[MOST_BLOCKS * 33 + 1] = "-", key[FBY_KEY_TEXT_BYTES] = "-";
    size_t blocks = v->token_count / v->block_tokens, length = 0;
    if (blocks > MOST_BLOCKS || fby_hasher_init(&hasher, v->kind, v->fingerprint, v->secret, v->secret_length) != 0 ||
        fby_chain_root(&hasher, v->parts, v->part_count, &root) != 0) {
        return false;
    }
    fby_chain_extend(&hasher, &root, v->tokens, v->block_tokens, blocks, hashes);
    for (size_t i = 0; i < blocks; i++) {
        length +=
            (size_t)snprintf(joined + length, sizeof(joined) - length, "%s%s", i > 0 ? "," : "", hex_of(&hashes[i]));
    }
    if (blocks > 0) {
        fby_key_text(&hashes[blocks - 1], 1, key);
    }
    bool good = strcmp(hex_of(&root), v->root) == 0 && strcmp(joined, v->hashes) == 0 && strcmp(key, v->key) == 0;
    if (!good) {
        fprintf(stderr, "line %d: root %s, hashes %s, key %s\n", v->line, hex_of(&root), joined, key);
    }
    return good;
}

/* Calls `use` for each line that begins with `word`; returns how many there were. */
static int each_line(const char *word, void (*use)(void *arg, int number, char *rest), void *arg)
{
    static char line[16384];
    int number = 0, used = 0;
    FILE *file = fopen(vectors_path, "r");
    assert_non_null(file);
    while (fgets(line, sizeof(line), file) != NULL) {
        number++;
        line[strcspn(line, "\n")] = '\0';
        if (strncmp(line, word, strlen(word)) == 0 && line[strlen(word)] == ' ') {
            use(arg, number, line + strlen(word) + 1);
            used++;
        }
    }
    fclose(file);
    return used;
}

typedef struct vector_list {
    vector_t *items;
    size_t count;
} vector_list_t;

static void keep_vector(void *arg, int number, char *rest)
{
    vector_list_t *list = arg;
    list->items = realloc(list->items, (list->count + 1) * sizeof(*list->items));
    assert_non_null(list->items);
    vector_t *v = &list->items[list->count++];
    v->line = number;
    parse_chain(v, rest);
}

/* Parts point into their vector, which realloc moved. */
static void settle_parts(vector_list_t *list)
{
    for (size_t i = 0; i < list->count; i++) {
        for (size_t k = 0; k < list->items[i].part_count; k++) {
            list->items[i].parts[k].data = list->items[i].part_bytes[k];
        }
    }
}

static int load_vectors(void **state)
{
    static vector_list_t list;
    each_line("chain", keep_vector, &list);
    settle_parts(&list);
    *state = &list;
    return 0;
}

static int free_vectors(void **state)
{
    free(((vector_list_t *)*state)->items);
    return 0;
}

static void there_are_a_hundred_vectors_of_each_hash(void **state)
{
    const vector_list_t *list = *state;
    int count[2] = {0, 0};
    for (size_t i = 0; i < list->count; i++) {
        count[list->items[i].kind]++;
    }
    assert_true(count[FBY_HASH_SHA256] >= 100);
    assert_true(count[FBY_HASH_XXH3] >= 100);
}

static void every_chain_vector_holds(void **state)
{
    const vector_list_t *list = *state;
    for (size_t i = 0; i < list->count; i++) {
        assert_true(vector_holds(&list->items[i]));
    }
}

static void *check_all(void *arg)
{
    const vector_list_t *list = arg;
    size_t wrong = 0;
    for (size_t i = 0; i < list->count; i++) {
        wrong += !vector_holds(&list->items[i]);
    }
    return (void *)(uintptr_t)wrong;
}

static void sixty_four_threads_agree(void **state)
{
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, check_all, *state), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        void *wrong = NULL;
        pthread_join(threads[i], &wrong);
        assert_null(wrong);
    }
}

static void a_chain_computed_block_by_block_is_the_same(void **state)
{
    const vector_list_t *list = *state;
    for (size_t i = 0; i < list->count; i++) {
        const vector_t *v = &list->items[i];
        fby_hasher_t hasher;
        fby_hash_t h;
        char key[FBY_KEY_TEXT_BYTES];
        size_t blocks = v->token_count / v->block_tokens;
        assert_int_equal(fby_hasher_init(&hasher, v->kind, v->fingerprint, v->secret, v->secret_length), 0);
        assert_int_equal(fby_chain_root(&hasher, v->parts, v->part_count, &h), 0);
        for (size_t b = 0; b < blocks; b++) {
            fby_chain_extend(&hasher, &h, v->tokens + b * v->block_tokens, v->block_tokens, 1, &h); /* in place */
        }
        if (blocks > 0) {
            fby_key_text(&h, 1, key);
            assert_string_equal(key, v->key);
        }
    }
}

static void check_fingerprint(void *arg, int number, char *rest)
{
    fby_fingerprint_fields_t f = {0};
    char groups[256], want[64], *left = groups, *group;
    int fields =
        sscanf(rest, "%255s %127s %lu %31s %u %127s %63s %u %u %u %255s %63s", f.model_id, f.revision, &f.weights_epoch,
               f.kv_dtype, &f.block_tokens, f.layer_set, f.layout, &f.tp_size, &f.cp_size, &f.pp_size, groups, want);
    assert_int_equal(fields, 12);
    while ((group = strsep(&left, ",")) != NULL) {
        fby_fp_group_t *g = &f.group[f.groups++];
        assert_int_equal(sscanf(group, "%31[^:]:%u:%u", g->name, &g->payload_bytes, &g->trailing), 3);
    }
    fby_hash_t digest;
    uint8_t bytes[16];
    assert_int_equal(fby_fingerprint(&f, bytes), 0);
    memcpy(digest.w, bytes, sizeof(bytes));
    assert_string_equal(hex_of(&digest), want);
}

static void every_fingerprint_vector_holds(void **state)
{
    assert_int_equal(each_line("fingerprint", check_fingerprint, NULL), 5);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(there_are_a_hundred_vectors_of_each_hash),
        cmocka_unit_test(every_chain_vector_holds),
        cmocka_unit_test(sixty_four_threads_agree),
        cmocka_unit_test(a_chain_computed_block_by_block_is_the_same),
        cmocka_unit_test(every_fingerprint_vector_holds),
    };
    if (argc < 2) {
        fprintf(stderr, "usage: %s VECTORS\n", argv[0]);
        return 2;
    }
    vectors_path = argv[1];
    return cmocka_run_group_tests(tests, load_vectors, free_vectors);
}
