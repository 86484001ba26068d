/*
 * standalone.c - a main() for fuzz targets where libFuzzer is absent: runs every file of the given directories or files,
 * then a fixed number of mutations of them. The same seed gives the same inputs on every machine.
 *
 *   fuzz_TARGET [-runs=N] [-seed=N] PATH...
 */
#include <dirent.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
/* Of targets that need it; libFuzzer calls it too. */
__attribute__((weak)) int LLVMFuzzerInitialize(int *argc, char ***argv);

enum { LONGEST_INPUT = 1 << 20, MOST_INPUTS = 4096, DEFAULT_RUNS = 2000 };

typedef struct input {
    uint8_t *data;
    size_t size;
} input_t;

static input_t inputs[MOST_INPUTS];
static size_t input_count;

static uint64_t random_next(uint64_t *state)
{
    uint64_t z = (*state += UINT64_C(0x9E3779B97F4A7C15));
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return z ^ (z >> 31);
}

static int input_load(const char *path)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL || input_count == MOST_INPUTS) {
        fprintf(stderr, "%s: %s\n", path, file == NULL ? strerror(errno) : "too many inputs");
        if (file != NULL) {
            fclose(file);
        }
        return 1;
    }
    input_t *input = &inputs[input_count];
    input->data = malloc(LONGEST_INPUT);
    if (input->data == NULL) {
        fclose(file);
        return 1;
    }
    input->size = fread(input->data, 1, LONGEST_INPUT, file);
    fclose(file);
    input_count++;
    return 0;
}

static int directory_load(const char *path)
{
    struct dirent **names = NULL;
    int n = scandir(path, &names, NULL, alphasort); /* sorted: the mutations depend on the order */
    int error = n < 0;
    for (int i = 0; i < n; i++) {
        char file[4096];
        snprintf(file, sizeof(file), "%s/%s", path, names[i]->d_name);
        if (names[i]->d_name[0] != '.') {
            error |= input_load(file);
        }
        free(names[i]);
    }
    free(names);
    return error;
}

static int path_load(const char *path)
{
    struct stat about;
    if (stat(path, &about) != 0) {
        fprintf(stderr, "%s: %s\n", path, strerror(errno));
        return 1;
    }
    return S_ISDIR(about.st_mode) ? directory_load(path) : input_load(path);
}

/* Runs a copy of exactly `size` bytes, so that a sanitizer sees a read beyond the end. */
static void run_one(const uint8_t *data, size_t size)
{
    uint8_t *copy = malloc(size > 0 ? size : 1);
    if (copy == NULL) {
        abort();
    }
    memcpy(copy, data, size);
    LLVMFuzzerTestOneInput(copy, size);
    free(copy);
}

/* A few flips, a cut, a doubled piece: enough to leave the paths that the seeds take. */
static void run_mutation(const input_t *seed, uint64_t *state)
{
    static uint8_t data[2 * LONGEST_INPUT];
    size_t size = seed->size;
    memcpy(data, seed->data, size);
    for (uint64_t i = random_next(state) % 4 + 1; i > 0 && size > 0; i--) {
        size_t at = random_next(state) % size;
        switch (random_next(state) % 5) {
        case 0:
            data[at] ^= (uint8_t)(1u << (random_next(state) % 8));
            break;
        case 1:
            data[at] = (uint8_t)random_next(state);
            break;
        case 2:
            data[at] = (uint8_t) "\0\xff\x7f\"{}[]:\n,-019e"[random_next(state) % 17];
            break;
        case 3:
            size = at;
            break;
        default:
            if (2 * size - at <= sizeof(data)) {
                memmove(data + size, data + at, size - at);
                size += size - at;
            }
        }
    }
    run_one(data, size);
}

int main(int argc, char **argv)
{
    uint64_t runs = DEFAULT_RUNS, state = 1;
    int error = 0;
    if (LLVMFuzzerInitialize != NULL) {
        LLVMFuzzerInitialize(&argc, &argv);
    }
    for (int i = 1; i < argc; i++) {
        if (strncmp(argv[i], "-runs=", 6) == 0) {
            runs = strtoull(argv[i] + 6, NULL, 10);
        } else if (strncmp(argv[i], "-seed=", 6) == 0) {
            state = strtoull(argv[i] + 6, NULL, 10);
        } else {
            error |= path_load(argv[i]);
        }
    }
    if (error != 0 || input_count == 0) {
        fprintf(stderr, "%s: a corpus that can be read is needed (found %zu inputs)\n", argv[0], input_count);
        return 1;
    }
    const size_t count = input_count;
    run_one((const uint8_t *)"", 0);
    for (size_t i = 0; i < count; i++) {
        run_one(inputs[i].data, inputs[i].size);
    }
    for (uint64_t i = 0; i < runs; i++) {
        run_mutation(&inputs[i % count], &state);
    }
    printf("%zu inputs, %llu mutations\n", count, (unsigned long long)runs);
    for (size_t i = 0; i < count; i++) {
        free(inputs[i].data);
    }
    return 0;
}
