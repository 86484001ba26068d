/* redis_hiredis.h - hiredis, for commands and trees of replies; its headers were not written for our warnings. */
#ifndef FBY_STORES_REDIS_HIREDIS_H
#define FBY_STORES_REDIS_HIREDIS_H

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wconversion"
#pragma GCC diagnostic ignored "-Wsign-conversion"
#include <hiredis.h>
#pragma GCC diagnostic pop

#endif
