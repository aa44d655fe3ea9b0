-- Dead letters as rows: kept by the alerts process, asked for and decided about by the command.

-- name: stage_letters
-- Where letters are copied to; empty again after each commit.
CREATE TEMPORARY TABLE IF NOT EXISTS staged_letters ON COMMIT DELETE ROWS AS SELECT
    identity, reason, stage, error, at, topic, partition, "offset", job_ids, tenant, name, scheduled_time, request_id,
    attempts, idempotency_key, key, value, headers, cut, letter_partition, letter_offset
FROM cronstream.dead_letters WITH NO DATA

-- name: keep_letters
-- What is copied and not there yet; a letter that is there already stays as it is. One whose run somebody tries again
-- already (history had told them) comes as redriven.
INSERT INTO cronstream.dead_letters (
    identity, reason, stage, error, at, topic, partition, "offset", job_ids, tenant, name, scheduled_time, request_id,
    attempts, idempotency_key, key, value, headers, cut, letter_partition, letter_offset, state, decided_at, decided_by)
SELECT s.*, CASE WHEN q.requested_at IS NULL THEN 'open' ELSE 'redriven' END, q.requested_at, q.requested_by
FROM staged_letters s LEFT JOIN LATERAL (
    SELECT requested_at, requested_by FROM cronstream.requests
    WHERE kind = 'redrive' AND s.job_ids = ARRAY[job_id] AND job_id = s.job_ids[1] AND scheduled_time = s.scheduled_time
      AND run_request_id = s.request_id AND attempt = s.attempts + 1
    ORDER BY number LIMIT 1) q ON true
ORDER BY letter_partition, letter_offset
ON CONFLICT (identity) DO NOTHING

-- name: list_letters
-- Letters, newest first, without what was set aside. NULL parameters mean "any".
SELECT letter_id, state, reason, stage, error, at, topic, partition, "offset", job_ids, tenant, name, scheduled_time,
       request_id, attempts, idempotency_key, cut, decided_at, decided_by
FROM cronstream.dead_letters
WHERE (%(state)s::text IS NULL OR state = %(state)s)
  AND (%(job_id)s::bigint IS NULL OR job_ids @> ARRAY[%(job_id)s::bigint])
  AND (%(tenants)s::text[] IS NULL OR (tenant, name) IN (SELECT * FROM unnest(%(tenants)s::text[], %(names)s::text[])))
  AND (%(tenant)s::text IS NULL OR tenant = %(tenant)s)
  AND (%(reason)s::text IS NULL OR reason = %(reason)s)
  AND (%(since)s::timestamptz IS NULL OR at >= %(since)s)
  AND (%(until)s::timestamptz IS NULL OR at < %(until)s)
  AND (%(letters)s::bigint[] IS NULL OR letter_id = ANY (%(letters)s::bigint[]))
ORDER BY letter_id DESC
LIMIT %(most)s::bigint

-- name: show_letter
-- One letter, whole.
SELECT * FROM cronstream.dead_letters WHERE letter_id = %(letter_id)s

-- name: lock_letter
-- One letter that is about to be decided; whoever else decides waits, and finds it decided.
SELECT letter_id, state, reason, topic, partition, "offset", job_ids, scheduled_time, request_id, attempts, key, value, headers, cut
FROM cronstream.dead_letters WHERE letter_id = %(letter_id)s FOR UPDATE

-- name: redrive_run
-- The run is tried again: its key stays, its attempts are numbered on. The letter is redriven with it.
SELECT cronstream.redrive(%(job_id)s::bigint, %(scheduled_time)s, %(request_id)s::bigint, %(attempts)s::integer)

-- name: decide
-- What became of it, and by whom.
UPDATE cronstream.dead_letters SET state = %(state)s, decided_at = now(), decided_by = session_user
WHERE letter_id = %(letter_id)s AND state = 'open'

-- name: count_open
-- How many wait for a decision, by reason.
SELECT reason, count(*) AS letters, min(at) AS oldest FROM cronstream.dead_letters
WHERE state = 'open' GROUP BY reason ORDER BY reason
