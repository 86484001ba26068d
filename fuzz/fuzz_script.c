/* fuzz_script.c - any text as a store script: it is refused with a message, or decides every kind of call. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "stores/script.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char error[256] = "";
    fby_script_t script;
    char *text = malloc(size + 1);
    if (text == NULL) {
        return 0;
    }
    memcpy(text, data, size);
    text[size] = '\0';
    int status = fby_script_parse(text, &script, error, sizeof(error));
    if (status == 0) {
        for (uint32_t i = 0; i < 4 * FBY_VERB_COUNT; i++) {
            fby_script_moment_t moment = {.verb = (fby_verb_t)(i % FBY_VERB_COUNT),
                                          .key = "0123456789abcdef0123456789abcdef-g0",
                                          .nth = 1 + i / FBY_VERB_COUNT,
                                          .call = 1 + i,
                                          .position = i % 3,
                                          .batch = 3};
            fby_script_decide(&script, &moment);
        }
        fby_script_free(&script);
    } else if (error[0] == '\0') {
        abort(); /* a refusal without a word */
    }
    free(text);
    return 0;
}
