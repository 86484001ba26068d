/* serve.c - a cache with a server, in a process of its own: settings as arguments; says so when ready; ends with stdin. */
#include <unistd.h>

#include "api/rig.h"

int main(int argc, char **argv)
{
    (void)argc;
    rig_t rig = {.name = "served"};
    char byte = 'r';
    fby_config_t *config = rig_config(&rig, (const char *const *)(argv + 1));
    int rc = fby_cache_open(config, &rig.cache);
    if (rc != 0) {
        fprintf(stderr, "serve: %s\n", fby_last_error());
        return 1;
    }
    fby_config_free(config);
    if (write(STDOUT_FILENO, &byte, 1) != 1) {
        return 1;
    }
    while (read(STDIN_FILENO, &byte, 1) > 0) {}
    return fby_cache_close(rig.cache, RIG_PATIENCE_S, NULL) == 0 ? 0 : 1;
}
