/*
 * metrics_page.h - metrics.listen: /metrics and /health over HTTP.
 *
 * One thread of libmicrohttpd, which sleeps while nobody asks. It uses the cache by the public calls only, so it needs
 * nothing of whoever closes the cache but to be stopped first. Off: no thread, no descriptor, no call of the library.
 */
#ifndef FBY_API_METRICS_PAGE_H
#define FBY_API_METRICS_PAGE_H

#include "base/base.h"
#include "forebay/forebay.h"

typedef struct fby_metrics_page fby_metrics_page_t;

/* `listen`: the value of metrics.listen, checked. *out is NULL when it is off. Logs the address. -errno with detail. */
int fby_metrics_page_open(fby_cache_t *cache, const char *listen, fby_metrics_page_t **out);
uint16_t fby_metrics_page_port(const fby_metrics_page_t *page);
/* Ends every connection and the thread; frees. NULL is fine. */
void fby_metrics_page_close(fby_metrics_page_t *page);

#endif
