-- The statements of the cronstream command. NULL parameters mean "any".

-- name: find_jobs
-- A job by its id, or by tenant and name: every way in which the reference can be read.
SELECT job_id, tenant, name, enabled FROM cronstream.job_definitions
WHERE job_id = %(job_id)s::bigint
   OR (tenant, name) IN (SELECT * FROM unnest(%(tenants)s::text[], %(names)s::text[]))

-- name: list_jobs
-- Definitions in order of tenant and name, with their next run.
SELECT d.job_id, d.tenant, d.name, d.cron, d.every, d.run_at, d.timezone, d.handler, d.enabled, s.next_run_at
FROM cronstream.job_definitions d LEFT JOIN cronstream.schedules s USING (job_id)
WHERE (%(tenant)s::text IS NULL OR d.tenant = %(tenant)s)
  AND (%(enabled)s::boolean IS NULL OR d.enabled = %(enabled)s)
ORDER BY d.tenant, d.name
LIMIT %(most)s::bigint

-- name: show_job
-- One definition with its schedule's row and its open edits.
SELECT d.*, s.next_run_at, s.anchor AS planned_anchor, s.version,
       (SELECT count(*) FROM cronstream.job_changes c WHERE c.job_id = d.job_id) AS open_changes
FROM cronstream.job_definitions d LEFT JOIN cronstream.schedules s USING (job_id)
WHERE d.job_id = %(job_id)s

-- name: pause_job
-- It fires no more until it is resumed.
SELECT cronstream.pause(%(tenant)s, %(name)s)

-- name: resume_job
-- It fires again from now on.
SELECT cronstream.resume(%(tenant)s, %(name)s)

-- name: delete_job
-- Its history stays.
SELECT cronstream.delete(%(tenant)s, %(name)s)

-- name: run_now
-- Run a job once, now.
SELECT cronstream.run_now(%(tenant)s, %(name)s, %(id)s)

-- name: backfill
-- Run a job for every scheduled time of a range.
SELECT cronstream.backfill(%(tenant)s, %(name)s, %(begins)s, %(ends)s, %(id)s)

-- name: suggest_jobs
-- Jobs of any tenant with that name, in any case.
SELECT tenant, name FROM cronstream.job_definitions WHERE lower(name) = ANY (%(names)s::text[])
ORDER BY tenant, name LIMIT %(most)s::bigint

-- name: has_history
-- Is there any row of a job that was deleted or renamed: by its id, or by what it was called?
SELECT EXISTS (
    SELECT FROM cronstream.job_runs
    WHERE job_id = %(job_id)s::bigint
       OR (tenant, name) IN (SELECT * FROM unnest(%(tenants)s::text[], %(names)s::text[])))

-- name: list_runs
-- History, newest scheduled time first; of a job by its id, or by what it was called then. `due` is from when on a first
-- attempt could be late: its scheduled time, or when it was asked for if that was later (a backfill); of a redrive, when it
-- was asked for. NULL for retries, which wait on purpose, and where the request is forgotten.
WITH found AS (
    SELECT job_id, tenant, name, scheduled_time, request_id, attempt, outcome, reason, first_time, run_count,
           published_at, started_at, finished_at, worker, fencing_token, error, output
    FROM cronstream.job_runs
    WHERE (%(job_id)s::bigint IS NULL OR job_id = %(job_id)s)
      AND (%(tenants)s::text[] IS NULL OR (tenant, name) IN (SELECT * FROM unnest(%(tenants)s::text[], %(names)s::text[])))
      AND (%(outcome)s::text IS NULL OR outcome = %(outcome)s)
      AND (%(since)s::timestamptz IS NULL OR scheduled_time >= %(since)s)
    ORDER BY scheduled_time DESC, job_id, request_id, attempt DESC
    LIMIT %(most)s::bigint)
SELECT f.*, CASE WHEN f.attempt = 1 AND f.request_id = 0 THEN f.scheduled_time
                 WHEN f.attempt = 1 AND q.number IS NOT NULL THEN greatest(f.scheduled_time, q.requested_at)
                 WHEN f.attempt > 1 THEN again.requested_at END AS due
FROM found f
LEFT JOIN cronstream.requests q ON q.number = f.request_id
LEFT JOIN LATERAL (
    SELECT requested_at FROM cronstream.requests
    WHERE kind = 'redrive' AND (job_id, scheduled_time, run_request_id, attempt) = (f.job_id, f.scheduled_time, f.request_id, f.attempt)
    ORDER BY number LIMIT 1) again ON true
ORDER BY f.scheduled_time DESC, f.job_id, f.request_id, f.attempt DESC

-- name: count_definitions
-- How many jobs there are; counted up to a million, beyond it the statistics' estimate.
SELECT CASE WHEN c.reltuples < 1e6 THEN (SELECT count(*) FROM cronstream.job_definitions) ELSE c.reltuples::bigint END AS definitions,
       CASE WHEN c.reltuples < 1e6 THEN (SELECT count(*) FROM cronstream.job_definitions WHERE NOT enabled) END AS paused,
       c.reltuples >= 1e6 AS estimated
FROM pg_class c WHERE c.oid = 'cronstream.job_definitions'::regclass

-- name: open_edits
-- Edits that no leader has planned yet, and how long the oldest has been open; requests with runs to publish.
SELECT count(*) AS open_changes, clock_timestamp() - min(changed_at) AS oldest_age,
       (SELECT count(*) FROM cronstream.open_requests) AS open_requests
FROM cronstream.job_changes

-- name: oldest_overdue
-- The schedule that has been due for longest, if any is.
SELECT s.job_id, d.tenant, d.name, s.next_run_at, clock_timestamp() - s.next_run_at AS overdue
FROM cronstream.schedules s LEFT JOIN cronstream.job_definitions d USING (job_id)
WHERE s.next_run_at < clock_timestamp()
ORDER BY s.next_run_at LIMIT 1
