-- The statements of the cronstream command. NULL parameters mean "any".

-- name: find_jobs
-- A job by its id, or by tenant and name: every way in which the reference can be read.
SELECT job_id, tenant, name, enabled FROM cronstream.job_definitions
WHERE job_id = %(job_id)s::bigint
   OR (tenant, name) IN (SELECT * FROM unnest(%(tenants)s::text[], %(names)s::text[]))

-- name: list_jobs
-- Definitions in order of tenant and name, with how they stand and their next run; planned ones without one are over.
SELECT d.job_id, d.tenant, d.name, d.cron, d.every, d.run_at, d.timezone, d.handler, d.enabled, j.state, j.last_run,
       s.next_run_at, s.job_id IS NOT NULL AND s.next_run_at IS NULL AS over
FROM cronstream.job_definitions d LEFT JOIN cronstream.schedules s USING (job_id) LEFT JOIN cronstream.job_status j USING (job_id)
WHERE (%(tenant)s::text IS NULL OR d.tenant = %(tenant)s)
  AND (%(enabled)s::boolean IS NULL OR d.enabled = %(enabled)s)
ORDER BY d.tenant, d.name
LIMIT %(most)s::bigint

-- name: show_job
-- One definition with how it stands, its schedule's row and its open edits.
SELECT d.*, j.state, coalesce(j.running, 0) AS running,
       s.next_run_at, s.job_id IS NOT NULL AND s.next_run_at IS NULL AS over, s.anchor AS planned_anchor, s.version,
       (SELECT count(*) FROM cronstream.job_changes c WHERE c.job_id = d.job_id) AS open_changes
FROM cronstream.job_definitions d LEFT JOIN cronstream.schedules s USING (job_id) LEFT JOIN cronstream.job_status j USING (job_id)
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
-- Run a job for every scheduled time of a range; without an end, up to now.
SELECT cronstream.backfill(%(tenant)s, %(name)s, %(begins)s, coalesce(%(ends)s::timestamptz, clock_timestamp()), %(id)s)

-- part: as_asked
-- A request with its runs: how many there are (NULL: none, or not known), and the first and last scheduled time of them.
SELECT number, kind, id, job_id, tenant, name, state, reason, published,
       CASE WHEN state <> 'refused' THEN CASE WHEN kind = 'backfill' THEN (answer ->> 'runs')::bigint WHEN scheduled_time IS NOT NULL THEN 1 END END AS runs,
       CASE kind WHEN 'backfill' THEN (answer ->> 'begins')::timestamptz ELSE scheduled_time END AS begins,
       CASE kind WHEN 'backfill' THEN ends ELSE scheduled_time END AS ends,
       CASE kind WHEN 'redrive' THEN run_request_id ELSE number END AS run_request_id, attempt, cursor,
       requested_at, requested_by, ended_at
FROM cronstream.requests

-- name: list_requests
-- Requests, newest first; about a job by its id, or by its name, which is all that a refused command says.
{as_asked}
WHERE (%(job_id)s::bigint IS NULL AND %(names)s::text[] IS NULL
       OR job_id = %(job_id)s::bigint
       OR (tenant, name) IN (SELECT * FROM unnest(%(tenants)s::text[], %(names)s::text[])))
  AND (%(kind)s::text IS NULL OR kind = %(kind)s)
  AND (%(state)s::text IS NULL OR state = %(state)s)
ORDER BY number DESC LIMIT %(most)s::bigint

-- name: show_request
-- One request.
{as_asked}
WHERE number = %(number)s

-- name: standing
-- How many runs of a request stand how: by the newest attempt of each.
SELECT state, count(*) FROM (
    SELECT DISTINCT ON (scheduled_time) state
    FROM (SELECT job_id, scheduled_time, request_id, attempt, outcome AS state FROM cronstream.job_runs
          UNION ALL SELECT job_id, scheduled_time, request_id, attempt, 'running' FROM cronstream.running_attempts) AS known
    WHERE job_id = %(job_id)s AND request_id = %(run_request_id)s AND scheduled_time BETWEEN %(begins)s AND %(ends)s
    ORDER BY scheduled_time, attempt DESC) AS newest
GROUP BY state ORDER BY state

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
    OR EXISTS (
    SELECT FROM cronstream.running_attempts
    WHERE job_id = %(job_id)s::bigint
       OR (tenant, name) IN (SELECT * FROM unnest(%(tenants)s::text[], %(names)s::text[])))

-- part: chosen
-- Attempts of a job, by its id or by what it was called then; of a request; of a range of scheduled times.
(%(job_id)s::bigint IS NULL OR job_id = %(job_id)s)
      AND (%(tenants)s::text[] IS NULL OR (tenant, name) IN (SELECT * FROM unnest(%(tenants)s::text[], %(names)s::text[])))
      AND (%(request_id)s::bigint IS NULL OR request_id = %(request_id)s)
      AND (%(since)s::timestamptz IS NULL OR scheduled_time >= %(since)s)
      AND (%(until)s::timestamptz IS NULL OR scheduled_time <= %(until)s)
    ORDER BY scheduled_time DESC, job_id, request_id, attempt DESC
    LIMIT %(most)s::bigint

-- name: list_runs
-- What ran and what runs, newest scheduled time first. `due` is from when on a first attempt could be late: its scheduled
-- time, or when it was asked for if that was later (a backfill); of a redrive, when it was asked for. NULL for retries,
-- which wait on purpose, and where the request is forgotten.
WITH ended AS (
    SELECT job_id, tenant, name, scheduled_time, request_id, attempt, outcome AS state, outcome, reason, first_time, run_count,
           published_at, started_at, finished_at, NULL::interval AS running_for, worker, fencing_token, error, output
    FROM cronstream.job_runs
    WHERE %(state)s::text IS DISTINCT FROM 'running' AND (%(state)s::text IS NULL OR outcome = %(state)s) AND {chosen}),
running AS (
    SELECT job_id, tenant, name, scheduled_time, request_id, attempt, 'running', NULL::text, NULL::text, NULL::timestamptz, 1::bigint,
           NULL::timestamptz, started_at, NULL::timestamptz, clock_timestamp() - started_at, worker, NULL::bigint, NULL::text, NULL::text
    FROM cronstream.running_attempts
    WHERE coalesce(%(state)s::text, 'running') = 'running' AND {chosen}),
found AS (
    SELECT * FROM ended UNION ALL SELECT * FROM running
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

-- name: started_lately
-- How late runs started in the last minute, in ms: first attempts of schedules (requests and retries are not due at their
-- scheduled time). History has no index by time, but is appended to: what was recorded last stands at the end of today's
-- partition or yesterday's (UTC). At most the last 512 blocks (4 MiB) of each are read, however large the day is.
WITH late AS (
    SELECT started_at - scheduled_time AS late FROM cronstream.job_runs
    WHERE scheduled_time >= current_date AND scheduled_time < current_date + 1
      AND ctid >= (SELECT ('(' || greatest(pg_relation_size(cronstream.job_runs_partition(current_date))
                                          / current_setting('block_size')::integer - 512, 0) || ',0)')::tid)
      AND attempt = 1 AND request_id = 0 AND started_at > now() - interval '1 minute'
    UNION ALL
    SELECT started_at - scheduled_time FROM cronstream.job_runs
    WHERE scheduled_time >= current_date - 1 AND scheduled_time < current_date
      AND ctid >= (SELECT ('(' || greatest(pg_relation_size(cronstream.job_runs_partition(current_date - 1))
                                          / current_setting('block_size')::integer - 512, 0) || ',0)')::tid)
      AND attempt = 1 AND request_id = 0 AND started_at > now() - interval '1 minute'
    UNION ALL
    SELECT started_at - scheduled_time FROM cronstream.running_attempts
    WHERE attempt = 1 AND request_id = 0 AND started_at > now() - interval '1 minute'),
late_ms AS (SELECT extract(epoch FROM late)::float8 * 1000 AS late_ms FROM late)
SELECT count(*) AS runs, percentile_disc(0.5) WITHIN GROUP (ORDER BY late_ms) AS lateness_p50_ms,
       percentile_disc(0.99) WITHIN GROUP (ORDER BY late_ms) AS lateness_p99_ms, max(late_ms) AS lateness_max_ms
FROM late_ms
