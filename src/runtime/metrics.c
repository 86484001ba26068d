#include "runtime/metrics.h"

#include "base/clock.h"
#include "runtime/job.h"

void fby_metrics_answered(fby_metrics_t *metrics, fby_policy_t policy, const fby_snapshot_t *result)
{
    metrics->sessions[policy][result->reason][result->outcome]++;
    metrics->lost_checkpoint += result->found_tokens - result->planned_tokens;
    metrics->lost[result->reason] += result->planned_tokens - result->delivered_tokens;
    fby_histogram_add(&metrics->session, fby_sub_sat(result->answered_ns, result->created_ns));
}

void fby_metrics_terminal(fby_metrics_t *metrics, const fby_snapshot_t *result)
{
    fby_histogram_add(&metrics->drain, fby_sub_sat(result->terminal_ns, result->sealed_ns));
}

static fby_call_result_t call_result(const fby_job_t *job)
{
    if (job->refused) {
        return FBY_CALL_REFUSED;
    }
    if (job->overdue) {
        return FBY_CALL_LATE;
    }
    if (job->cut) {
        return FBY_CALL_CUT;
    }
    return job->reached ? FBY_CALL_ANSWERED : FBY_CALL_UNREACHED;
}

void fby_metrics_call(fby_metrics_t *metrics, const fby_job_t *job, uint64_t now)
{
    fby_call_result_t result = call_result(job);
    metrics->calls[job->kind][result]++;
    if (result != FBY_CALL_REFUSED) {
        fby_histogram_add(&metrics->call[job->kind], fby_sub_sat(now, job->begun_at));
    }
}
