-- The leader's statements. Whatever it writes is one autocommitted statement that locks the
-- epoch's row FOR SHARE and finds its own token there; "fenced" says how often it did (1 or 0).
-- In the arrays that it sends, -1 stands for "none".

-- part: epoch
-- The fence: no row for an older leader; a newer one waits until the statement is over.
epoch AS MATERIALIZED (
    SELECT FROM cronstream.coordinator_epoch WHERE token = %(token)s FOR SHARE
)

-- part: covered
-- The triggers offsets that a write covers.
covered AS (
    INSERT INTO cronstream.trigger_offsets (partition, next_offset)
    SELECT partition, next_offset
    FROM unnest(%(partitions)b::int[], %(offsets)b::bigint[]) AS t (partition, next_offset), epoch
    ON CONFLICT (partition) DO UPDATE
    SET next_offset = greatest(trigger_offsets.next_offset, excluded.next_offset)
)

-- name: raise_epoch
-- Fence Postgres: from here on every older token is refused. No row: the token is not newer.
UPDATE cronstream.coordinator_epoch
SET token = base + %(revision)s, node = %(node)s, raised_at = clock_timestamp(), tzdata = %(tzdata)s,
    etcd_identity = %(etcd_identity)s
WHERE base + %(revision)s > token
RETURNING token

-- name: read_epoch
-- The newest token seen, and by whom.
SELECT token, base, node, tzdata, tzdata_planned, etcd_identity FROM cronstream.coordinator_epoch

-- name: adopt_etcd
-- Go on counting tokens from the newest one, on top of an etcd that counts anew.
UPDATE cronstream.coordinator_epoch SET base = token, etcd_identity = NULL RETURNING base

-- name: read_clock
-- The clock that decides what is due.
SELECT cronstream.us(clock_timestamp())

-- name: read_offsets
-- The triggers offsets up to which everything published is advanced.
SELECT partition, next_offset FROM cronstream.trigger_offsets

-- name: advance
-- Move jobs on to their next scheduled time, and note the triggers offsets that this covers.
WITH {epoch}, sent AS (
    SELECT * FROM unnest(%(job_ids)b::bigint[], %(expected)b::bigint[], %(versions)b::bigint[], %(next_us)b::bigint[])
        AS sent (job_id, expected, version, next_us)
), advanced AS (
    UPDATE cronstream.schedules s
    SET next_run_at = cronstream.instant(nullif(sent.next_us, -1)), version = sent.version, tzdata = %(tzdata)s
    FROM sent, epoch
    WHERE s.job_id = sent.job_id AND s.version = sent.expected
    RETURNING 1
), {covered}
SELECT (SELECT count(*) FROM epoch) AS fenced, (SELECT count(*) FROM advanced) AS done

-- name: store_plans
-- Write what edits came to, and close the changes they came from.
WITH {epoch}, sent AS (
    SELECT * FROM unnest(%(job_ids)b::bigint[], %(expected)b::bigint[], %(versions)b::bigint[], %(next_us)b::bigint[],
                         %(revisions)b::bigint[], %(anchors_us)b::bigint[], %(gone)b::bool[])
        AS sent (job_id, expected, version, next_us, revision, anchor_us, gone)
), stored AS (
    INSERT INTO cronstream.schedules AS s (job_id, next_run_at, version, revision, anchor, tzdata)
    SELECT job_id, cronstream.instant(nullif(next_us, -1)), version, revision, cronstream.instant(nullif(anchor_us, -1)), %(tzdata)s
    FROM sent, epoch WHERE NOT gone
    ON CONFLICT (job_id) DO UPDATE
    SET next_run_at = excluded.next_run_at, version = excluded.version, revision = excluded.revision,
        anchor = excluded.anchor, tzdata = excluded.tzdata
    WHERE s.version = excluded.version - 1
    RETURNING job_id
), removed AS (
    DELETE FROM cronstream.schedules s USING sent, epoch
    WHERE s.job_id = sent.job_id AND sent.gone AND s.version = sent.expected
    RETURNING s.job_id
), matched AS (
    -- A job that is gone and never had a row matches as well: there is nothing to remove.
    SELECT job_id FROM stored UNION ALL SELECT job_id FROM removed
    UNION ALL SELECT job_id FROM sent, epoch WHERE gone AND expected = 0
), closed AS (
    DELETE FROM cronstream.job_changes c USING epoch
    WHERE c.change_id = ANY (%(change_ids)b::bigint[]) AND c.job_id IN (SELECT job_id FROM matched)
), {covered}
SELECT (SELECT count(*) FROM epoch) AS fenced, (SELECT count(*) FROM matched) AS done

-- name: apply_tail
-- After a takeover: what was published and not advanced moves past its newest published time. No offsets are noted: what
-- was settled of edits that are still open stands on the log alone, and the next leader must find it too.
WITH {epoch}, sent AS (
    SELECT * FROM unnest(%(job_ids)b::bigint[], %(published_us)b::bigint[]) AS sent (job_id, published_us)
), advanced AS (
    UPDATE cronstream.schedules s
    SET next_run_at = cronstream.instant(sent.published_us + 1), version = s.version + 1
    FROM sent, epoch
    WHERE s.job_id = sent.job_id AND s.next_run_at <= cronstream.instant(sent.published_us)
    RETURNING 1
)
SELECT (SELECT count(*) FROM epoch) AS fenced, (SELECT count(*) FROM advanced) AS done

-- name: load
-- A slice of the jobs that fall due, soonest first; those with an open change are planned from it instead.
-- In the form of coordinator/columns.py: what most rows share is one value, and nothing is converted here.
SELECT s.job_id, s.next_run_at, s.version, s.tzdata, coalesce(d.anchor, s.anchor) AS anchor, d.name, d.payload::text,
       CASE WHEN num_nonnulls(d.run_at, d.starts_at, d.ends_at) > 0 THEN ROW(d.run_at, d.starts_at, d.ends_at) END AS bounds,
       ROW(d.enabled, d.cron, d.every, d.timezone, d.misfire_policy, d.misfire_grace, d.catch_up_limit, d.dst_gap,
           d.dst_overlap, d.spread_seconds, d.tenant, d.handler, d.overlap_policy, d.max_attempts, d.backoff_seconds,
           d.backoff_factor, d.max_backoff, d.jitter, d.timeout_seconds) AS common
FROM cronstream.schedules s JOIN cronstream.job_definitions d USING (job_id)
WHERE s.next_run_at IS NOT NULL
  AND (s.next_run_at, s.job_id) > (coalesce(cronstream.instant(%(after_us)s), '-infinity'), %(after_id)s)
  AND s.next_run_at <= cronstream.instant(%(until_us)s)
  AND NOT EXISTS (SELECT FROM cronstream.job_changes c WHERE c.job_id = s.job_id)
ORDER BY s.next_run_at, s.job_id
LIMIT %(most)s

-- name: load_other_zone_data
-- A slice of what lies beyond the horizon and was planned with other time zone data, soonest first.
SELECT r.*, cronstream.us(s.next_run_at) AS next_us, s.version, cronstream.us(s.anchor) AS stored_anchor_us, s.tzdata
FROM cronstream.schedules s JOIN cronstream.job_rules r USING (job_id)
WHERE s.next_run_at IS NOT NULL AND s.tzdata IS DISTINCT FROM %(tzdata)s
  AND (s.next_run_at, s.job_id) > (cronstream.instant(%(after_us)s), %(after_id)s)
  AND NOT EXISTS (SELECT FROM cronstream.job_changes c WHERE c.job_id = s.job_id)
ORDER BY s.next_run_at, s.job_id
LIMIT %(most)s

-- name: zone_data_planned
-- The newest time zone data with which every plan was made.
SELECT tzdata_planned FROM cronstream.coordinator_epoch

-- name: note_zone_data_planned
-- Every plan was made with this time zone data now.
UPDATE cronstream.coordinator_epoch SET tzdata_planned = %(tzdata)s WHERE token = %(token)s RETURNING 1

-- name: read_jobs
-- The rows of named jobs, as load reads them: what a write that matched nothing is checked against.
SELECT r.*, cronstream.us(s.next_run_at) AS next_us, s.version, cronstream.us(s.anchor) AS stored_anchor_us, s.tzdata
FROM cronstream.schedules s JOIN cronstream.job_rules r USING (job_id)
WHERE s.job_id = ANY (%(job_ids)s)
  AND NOT EXISTS (SELECT FROM cronstream.job_changes c WHERE c.job_id = s.job_id)

-- name: read_versions
-- Which of these jobs have a row, at which version.
SELECT job_id, version FROM cronstream.schedules WHERE job_id = ANY (%(job_ids)s)

-- name: open_changes
-- Every open edit, oldest first: its job and when it was committed. Postgres forgets commit times
-- of old transactions; the statement's own is the nearest then.
SELECT change_id, job_id, cronstream.us(coalesce(pg_xact_commit_timestamp(xmin), changed_at)) AS committed_us
FROM cronstream.job_changes WHERE change_id > %(after_id)s ORDER BY change_id LIMIT %(most)s

-- name: forget_announcements
-- Word of edits that capture has read, or will not; the edits stand in job_changes until they are planned.
WITH gone AS (
    DELETE FROM cronstream.announcements WHERE announced_at < clock_timestamp() - interval '1 minute' RETURNING 1
)
SELECT count(*) AS gone FROM gone

-- name: read_edits
-- The open changes of named jobs in commit order, beside the definition and the schedule's row.
SELECT r.*, r.job_id IS NOT NULL AS defined,
       c.change_id, c.job_id, c.revision AS change_revision, c.previous,
       cronstream.us(coalesce(pg_xact_commit_timestamp(c.xmin), c.changed_at)) AS committed_us,
       cronstream.us(s.next_run_at) AS next_us, s.version, cronstream.us(s.anchor) AS stored_anchor_us, s.tzdata
FROM cronstream.job_changes c
LEFT JOIN cronstream.schedules s USING (job_id)
LEFT JOIN cronstream.job_rules r USING (job_id)
WHERE c.job_id = ANY (%(job_ids)s)
ORDER BY c.job_id, c.change_id

-- name: open_requests
-- Requests with runs to publish, oldest first.
SELECT number, kind FROM cronstream.open_requests WHERE number > %(after)s ORDER BY number LIMIT %(most)s

-- name: read_requests
-- Open requests by number, beside the definition as it is now.
SELECT r.*, r.job_id IS NOT NULL AS defined, cronstream.us(s.anchor) AS stored_anchor_us,
       q.number, q.kind, q.job_id AS requested_job_id, q.published, cronstream.us(q.cursor) AS cursor_us,
       cronstream.us(q.scheduled_time) AS scheduled_us, q.run_request_id, q.attempt,
       cronstream.us(q.ends) AS ends_us, cronstream.backfill_limit() AS most_runs, cronstream.us(clock_timestamp()) AS now_us
FROM cronstream.open_requests o
JOIN cronstream.requests q USING (number)
LEFT JOIN cronstream.job_rules r ON r.job_id = q.job_id
LEFT JOIN cronstream.schedules s ON s.job_id = q.job_id
WHERE o.number = ANY (%(numbers)s)
ORDER BY q.number

-- name: store_steps
-- Note how far requests have been published, and close those that have come to their end.
WITH {epoch}, sent AS (
    SELECT * FROM unnest(%(numbers)b::bigint[], %(cursors_us)b::bigint[], %(published)b::bigint[],
                         %(states)s::text[], %(reasons)s::text[])
        AS sent (number, cursor_us, published, state, reason)
), stored AS (
    UPDATE cronstream.requests q
    SET cursor = coalesce(cronstream.instant(nullif(sent.cursor_us, -1)), q.cursor), published = sent.published,
        state = sent.state, reason = sent.reason,
        ended_at = CASE WHEN sent.state <> 'open' THEN clock_timestamp() END
    FROM sent, epoch
    WHERE q.number = sent.number AND q.state = 'open'
    RETURNING 1
), closed AS (
    DELETE FROM cronstream.open_requests o USING sent, epoch
    WHERE o.number = sent.number AND sent.state <> 'open'
), {covered}
SELECT (SELECT count(*) FROM epoch) AS fenced, (SELECT count(*) FROM stored) AS done
