-- The statements of the history sink. One transaction a batch: rows, status of jobs, offsets.

-- name: stage
-- Where a batch is copied to; empty again after each commit.
CREATE TEMPORARY TABLE IF NOT EXISTS staged_runs (LIKE cronstream.job_runs INCLUDING DEFAULTS) ON COMMIT DELETE ROWS;
CREATE TEMPORARY TABLE IF NOT EXISTS staged_counts (
    job_id bigint, succeeded bigint, failed bigint, timed_out bigint, lost bigint, skipped bigint, cancelled bigint
) ON COMMIT DELETE ROWS;
CREATE TEMPORARY TABLE IF NOT EXISTS staged_starts (LIKE cronstream.running_attempts) ON COMMIT DELETE ROWS;
CREATE TEMPORARY TABLE IF NOT EXISTS staged_ends (
    job_id bigint, scheduled_time timestamptz, request_id bigint, attempt integer
) ON COMMIT DELETE ROWS;
CREATE TEMPORARY TABLE IF NOT EXISTS staged_jobs (
    job_id bigint, tenant text, name text, last_run timestamptz, last_request_id bigint, last_attempt integer,
    last_outcome text, last_finished_at timestamptz, last_error text, deleted boolean
) ON COMMIT DELETE ROWS

-- name: know_offsets
-- Rows for partitions that have none yet, so that they can be locked.
INSERT INTO cronstream.outcomes_read (topic_id, partition, next_offset)
SELECT %(topic_id)s, partition, 0 FROM unnest(%(partitions)s::integer[]) AS partition ORDER BY partition
ON CONFLICT DO NOTHING

-- name: lock_offsets
-- Up to where each partition is in job_status; whoever else writes them waits.
SELECT partition, next_offset FROM cronstream.outcomes_read
WHERE topic_id = %(topic_id)s AND partition = ANY (%(partitions)s::integer[])
ORDER BY partition FOR UPDATE

-- name: note_offsets
-- This batch is in job_status.
UPDATE cronstream.outcomes_read o SET next_offset = greatest(o.next_offset, new.next_offset)
FROM unnest(%(partitions)s::integer[], %(offsets)s::bigint[]) AS new (partition, next_offset)
WHERE o.topic_id = %(topic_id)s AND o.partition = new.partition

-- name: store_rows
-- What is copied and not there yet becomes history, and is counted.
WITH new AS (
    INSERT INTO cronstream.job_runs ({columns}) SELECT {columns} FROM staged_runs ON CONFLICT DO NOTHING
    RETURNING job_id, outcome, run_count)
INSERT INTO staged_counts
SELECT job_id,
       coalesce(sum(run_count) FILTER (WHERE outcome = 'succeeded'), 0), coalesce(sum(run_count) FILTER (WHERE outcome = 'failed'), 0),
       coalesce(sum(run_count) FILTER (WHERE outcome = 'timed_out'), 0), coalesce(sum(run_count) FILTER (WHERE outcome = 'lost'), 0),
       coalesce(sum(run_count) FILTER (WHERE outcome = 'skipped'), 0), coalesce(sum(run_count) FILTER (WHERE outcome = 'cancelled'), 0)
FROM new GROUP BY job_id

-- name: forget_rows
-- So that the next part of the batch is counted alone.
DELETE FROM staged_runs

-- name: store_status
-- What a batch changes in job_status and running_attempts. An inserted row's running is the change of it: what ends
-- here began in an earlier batch, whose row is there.
WITH ended AS (
    DELETE FROM cronstream.running_attempts r USING staged_ends e
    WHERE (r.job_id, r.scheduled_time, r.request_id, r.attempt) = (e.job_id, e.scheduled_time, e.request_id, e.attempt)
    RETURNING r.job_id),
began AS (
    INSERT INTO cronstream.running_attempts
    SELECT s.* FROM staged_starts s
    WHERE NOT EXISTS (  -- a start that was told again after its end
        SELECT FROM cronstream.job_runs h
        WHERE (h.job_id, h.scheduled_time, h.request_id, h.attempt) = (s.job_id, s.scheduled_time, s.request_id, s.attempt))
    ON CONFLICT DO NOTHING
    RETURNING job_id),
moved AS (
    SELECT job_id, sum(step)::integer AS running
    FROM (SELECT job_id, 1 AS step FROM began UNION ALL SELECT job_id, -1 FROM ended) AS steps GROUP BY job_id),
counted AS (
    SELECT job_id, sum(succeeded) AS succeeded, sum(failed) AS failed, sum(timed_out) AS timed_out, sum(lost) AS lost,
           sum(skipped) AS skipped, sum(cancelled) AS cancelled
    FROM staged_counts GROUP BY job_id)
INSERT INTO cronstream.job_status AS s (
    job_id, tenant, name, state, running, last_run, last_request_id, last_attempt, last_outcome, last_finished_at,
    last_error, succeeded, failed, timed_out, lost, skipped, cancelled)
SELECT j.job_id, j.tenant, j.name,
       CASE WHEN j.deleted THEN 'deleted' WHEN m.running > 0 THEN 'running' ELSE coalesce(j.last_outcome, 'idle') END,
       coalesce(m.running, 0),
       j.last_run, j.last_request_id, j.last_attempt, j.last_outcome, j.last_finished_at, j.last_error,
       coalesce(c.succeeded, 0), coalesce(c.failed, 0), coalesce(c.timed_out, 0), coalesce(c.lost, 0),
       coalesce(c.skipped, 0), coalesce(c.cancelled, 0)
FROM staged_jobs j LEFT JOIN moved m USING (job_id) LEFT JOIN counted c USING (job_id)
ORDER BY j.job_id
ON CONFLICT (job_id) DO UPDATE SET
    tenant = excluded.tenant,
    name = excluded.name,
    state = CASE WHEN s.state = 'deleted' OR excluded.state = 'deleted' THEN 'deleted'
                 WHEN s.running + excluded.running > 0 THEN 'running'
                 ELSE coalesce(excluded.last_outcome, s.last_outcome, 'idle') END,
    running = s.running + excluded.running,
    last_run = CASE WHEN excluded.last_outcome IS NULL THEN s.last_run ELSE excluded.last_run END,
    last_request_id = CASE WHEN excluded.last_outcome IS NULL THEN s.last_request_id ELSE excluded.last_request_id END,
    last_attempt = CASE WHEN excluded.last_outcome IS NULL THEN s.last_attempt ELSE excluded.last_attempt END,
    last_finished_at = CASE WHEN excluded.last_outcome IS NULL THEN s.last_finished_at ELSE excluded.last_finished_at END,
    last_error = CASE WHEN excluded.last_outcome IS NULL THEN s.last_error ELSE excluded.last_error END,
    last_outcome = coalesce(excluded.last_outcome, s.last_outcome),
    succeeded = s.succeeded + excluded.succeeded,
    failed = s.failed + excluded.failed,
    timed_out = s.timed_out + excluded.timed_out,
    lost = s.lost + excluded.lost,
    skipped = s.skipped + excluded.skipped,
    cancelled = s.cancelled + excluded.cancelled,
    updated_at = now()

-- name: attached_days
-- The partitions of job_runs with their first and last days, oldest first; `kept` while a restored day of theirs is to
-- stay. No estimate of the rows (NULL) before Postgres has looked at a partition.
SELECT t.source::text, t.day, t.last_day, nullif(c.reltuples, -1)::bigint AS rows_estimate, pg_total_relation_size(c.oid) AS bytes,
       EXISTS (SELECT FROM cronstream.history_exports e WHERE e.day <= t.last_day AND e.last_day >= t.day
               AND e.dropped_at IS NULL AND e.keep_until > now()) AS kept
FROM cronstream.job_runs_tables t JOIN pg_class c ON c.oid = t.source
WHERE t.attached ORDER BY t.day, c.relname

-- name: attached_spans
-- First and last days of the partitions.
SELECT day, last_day FROM cronstream.job_runs_tables WHERE attached

-- name: detached_days
-- Tables that were partitions of job_runs, and are not any more, or whose rows were in one.
SELECT source::text, day FROM cronstream.job_runs_tables WHERE NOT attached AND NOT pending ORDER BY day, source::text

-- name: pending_detachment
-- The partition whose detachment began and did not end.
SELECT source::text FROM cronstream.job_runs_tables WHERE pending

-- name: exports
-- Every file, by day and part.
SELECT day, last_day, part, file, source, rows, checksum, exported_at, dropped_at, keep_until FROM cronstream.history_exports
WHERE (%(day)s::date IS NULL OR day = %(day)s)
ORDER BY day, part

-- name: exports_with
-- The files that hold rows of a day.
SELECT day, last_day, part, file, source, rows, checksum, exported_at, dropped_at, keep_until FROM cronstream.history_exports
WHERE %(day)s BETWEEN day AND last_day
ORDER BY day, part

-- name: last_day
-- The last day of a table of history.
SELECT last_day FROM cronstream.job_runs_tables WHERE source = %(source)s::regclass

-- name: note_export
-- A file is written and verified; one part has one file.
INSERT INTO cronstream.history_exports (day, last_day, part, file, source, rows, checksum)
VALUES (%(day)s, %(last_day)s, %(part)s, %(file)s, %(source)s, %(rows)s, %(checksum)s)
ON CONFLICT (day, part) DO UPDATE SET
    last_day = excluded.last_day, file = excluded.file, source = excluded.source, rows = excluded.rows,
    checksum = excluded.checksum, exported_at = now(), dropped_at = NULL

-- name: note_set_apart
-- What was restored into a partition, and was to stay until now, is in it no more.
UPDATE cronstream.history_exports SET dropped_at = now(), keep_until = NULL
WHERE source = %(source)s AND dropped_at IS NULL AND keep_until <= now()

-- name: note_dropped
-- Its rows are in files alone.
UPDATE cronstream.history_exports SET dropped_at = now(), keep_until = NULL
WHERE source = %(source)s AND dropped_at IS NULL

-- name: note_restored
-- Its rows are in job_runs again.
UPDATE cronstream.history_exports
SET source = coalesce(cronstream.job_runs_partition(day)::text, source), dropped_at = NULL, keep_until = now() + %(keep)s::interval
WHERE %(day)s BETWEEN day AND last_day

-- name: make_room
-- Partitions for restored rows: a day that was alone is alone again, where no partition has it.
SELECT cronstream.ensure_job_runs_partition(day, %(alone)s)
FROM (SELECT DISTINCT (scheduled_time AT TIME ZONE 'UTC')::date AS day FROM cronstream.restored_runs) AS days

-- name: merge_restored
-- Restored rows into their partitions, which may have rows of their own.
INSERT INTO cronstream.job_runs SELECT * FROM cronstream.restored_runs ON CONFLICT DO NOTHING
