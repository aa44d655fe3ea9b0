-- History: one row an attempt, and one for every scheduled time that did not run. Append-only; UTC days of the
-- scheduled time, let go of day by day; those long past in one; no default partition, so that old days can be
-- detached concurrently.
-- And what SQL users see of jobs and dead letters.

CREATE TABLE cronstream.job_runs (
    job_id          bigint NOT NULL,
    scheduled_time  timestamptz NOT NULL,
    request_id      bigint NOT NULL DEFAULT 0,   -- 0: the schedule's own
    attempt         integer NOT NULL,            -- from 1; 0: did not run
    tenant          text,
    name            text,
    outcome         text NOT NULL CHECK (outcome IN ('succeeded', 'failed', 'timed_out', 'lost', 'skipped', 'cancelled')),
    reason          text,
    first_time      timestamptz,                 -- of summed-up skips; scheduled_time is the last
    run_count       bigint DEFAULT 1,            -- how many scheduled times the row stands for
    published_at    timestamptz,
    started_at      timestamptz,
    finished_at     timestamptz,
    worker          text,
    fencing_token   bigint,
    error           text,
    output          text,
    recorded_at     timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (job_id, scheduled_time, request_id, attempt),
    CHECK (outcome <> 'skipped' OR attempt = 0)
) PARTITION BY RANGE (scheduled_time);

-- ---- partitions ------------------------------------------------------------------------------------

-- Tables of history by their names: of a day (job_runs_20260105), of several that are long past (with _to_ and the last
-- of them; that from 0001-01-01 on holds what is older as well), numbered where the name was taken. `attached`: a
-- partition. The others are detached, or half so (`pending`), or hold what retention has set apart (_aged).
CREATE VIEW cronstream.job_runs_tables AS
SELECT c.oid::regclass AS source, to_date(named[1], 'YYYYMMDD') AS day, to_date(coalesce(named[3], named[1]), 'YYYYMMDD') AS last_day,
       i.inhdetachpending IS FALSE AS attached, i.inhdetachpending IS TRUE AS pending
FROM pg_class c CROSS JOIN LATERAL regexp_match(c.relname, '^job_runs_(\d{8})(_to_(\d{8}))?(_\d+)?(_aged)?$') AS named
LEFT JOIN pg_inherits i ON i.inhrelid = c.oid AND i.inhparent = 'cronstream.job_runs'::regclass
WHERE c.relnamespace = 'cronstream'::regnamespace AND c.relkind = 'r' AND named IS NOT NULL;

-- The table that holds a UTC day's rows now; NULL if none is attached. A day may have had others, which retention
-- has detached and may still be exporting.
CREATE FUNCTION cronstream.job_runs_partition(day date) RETURNS regclass
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on
BEGIN ATOMIC
    SELECT t.source FROM cronstream.job_runs_tables t WHERE t.attached AND job_runs_partition.day BETWEEN t.day AND t.last_day;
END;

-- Locked by whoever exports, drops or restores days. A table that nobody is granted, because an advisory lock can be held
-- by whoever connects.
CREATE TABLE cronstream.retention ();

-- Make a partition for a UTC day if it has none; true if it was made now. Safe to call from any process at once.
-- A day more than 62 days ago gets one with all days around it that have none, however many, unless it is to be `alone`:
-- rows of a thousand years make one table, and not one a day. A day more than 31 days ahead gets none.
-- Built beside and then attached, because CREATE TABLE PARTITION OF would lock readers out. A late row of a day
-- that retention is letting go of gets a new table: only while the old one's detachment is under way must it wait,
-- which is error 55P03 (try again). A detachment that nobody carries on is ended here.
CREATE FUNCTION cronstream.ensure_job_runs_partition(day date, alone boolean DEFAULT false) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on SET lock_timeout = '5s' AS $$
#variable_conflict use_column
DECLARE
    wanted CONSTANT date := day;
    today CONSTANT date := (now() AT TIME ZONE 'UTC')::date;
    first_day date := day;
    last_day date := day;
    pending regclass;
    base text;
    part text;
    number integer := 1;
BEGIN
    IF (wanted BETWEEN '0001-01-01' AND today + 31) IS NOT TRUE THEN
        RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value', MESSAGE = format('no partition for day %L', wanted);
    END IF;
    IF cronstream.job_runs_partition(wanted) IS NOT NULL THEN
        RETURN false;
    END IF;
    LOCK TABLE cronstream.job_runs IN SHARE UPDATE EXCLUSIVE MODE;   -- what ATTACH takes; readers and inserts go on
    IF cronstream.job_runs_partition(wanted) IS NOT NULL THEN
        RETURN false;
    END IF;
    SELECT t.source INTO pending FROM cronstream.job_runs_tables t WHERE t.pending;
    IF pending IS NOT NULL THEN
        BEGIN
            LOCK TABLE cronstream.retention IN EXCLUSIVE MODE NOWAIT;
        EXCEPTION WHEN lock_not_available THEN
            RAISE EXCEPTION USING ERRCODE = 'lock_not_available', MESSAGE = format('%s is being detached', pending);
        END;
        EXECUTE format('ALTER TABLE cronstream.job_runs DETACH PARTITION %s FINALIZE', pending);
    END IF;
    IF wanted < today - 62 AND NOT alone THEN
        SELECT coalesce(max(t.last_day) FILTER (WHERE t.last_day < wanted) + 1, '0001-01-01'),
               least(min(t.day) FILTER (WHERE t.day > wanted) - 1, today - 63)
        INTO first_day, last_day FROM cronstream.job_runs_tables t WHERE t.attached;
    END IF;
    base := 'job_runs_' || to_char(first_day, 'YYYYMMDD');
    IF last_day > first_day THEN
        base := base || '_to_' || to_char(last_day, 'YYYYMMDD');
    END IF;
    part := base;
    WHILE EXISTS (SELECT FROM pg_class WHERE relname = part AND relnamespace = 'cronstream'::regnamespace) LOOP
        number := number + 1;
        part := base || '_' || number;
    END LOOP;
    EXECUTE format('CREATE TABLE cronstream.%I (LIKE cronstream.job_runs INCLUDING DEFAULTS INCLUDING CONSTRAINTS INCLUDING INDEXES)', part);
    EXECUTE format('ALTER TABLE cronstream.job_runs ATTACH PARTITION cronstream.%I FOR VALUES FROM (%s) TO (%L)', part,
                   CASE WHEN first_day = '0001-01-01' THEN 'MINVALUE' ELSE quote_literal(first_day::timestamp AT TIME ZONE 'UTC') END,
                   (last_day + 1)::timestamp AT TIME ZONE 'UTC');
    RETURN true;
END $$;

SELECT cronstream.ensure_job_runs_partition((now() AT TIME ZONE 'UTC')::date + ahead) FROM generate_series(-1, 7) AS ahead;

-- One row a file: what was exported, and whether its rows are in Postgres again.
CREATE TABLE cronstream.history_exports (
    day          date NOT NULL,
    last_day     date NOT NULL,             -- after day where the partition held several
    part         integer NOT NULL,          -- from 1; a day has more if rows came after its export
    file         text NOT NULL,             -- its name in the history folder
    source       text NOT NULL,             -- the partition that it was exported from
    rows         bigint NOT NULL,
    checksum     text NOT NULL,             -- sha256 of the rows as CSV, in the order of the primary key
    exported_at  timestamptz NOT NULL DEFAULT now(),
    dropped_at   timestamptz,               -- NULL: its rows are still, or again, in job_runs
    keep_until   timestamptz,               -- restored: retention lets the day be until then
    PRIMARY KEY (day, part)
);

-- ---- status in SQL ---------------------------------------------------------------------------------

-- Written by the history sink in the transaction that stores the rows. Only tenant is indexed beside the key, so that
-- an update touches no index.
CREATE TABLE cronstream.job_status (
    job_id          bigint PRIMARY KEY,
    tenant          text NOT NULL,
    name            text NOT NULL,
    state           text NOT NULL,           -- running, else last_outcome; deleted
    running         integer NOT NULL DEFAULT 0,
    last_run        timestamptz,             -- scheduled time of the attempt or skip that was heard of last
    last_request_id bigint,
    last_attempt    integer,
    last_outcome    text,
    last_finished_at timestamptz,
    last_error      text,                    -- or the reason of a skip
    succeeded       bigint NOT NULL DEFAULT 0,
    failed          bigint NOT NULL DEFAULT 0,
    timed_out       bigint NOT NULL DEFAULT 0,
    lost            bigint NOT NULL DEFAULT 0,
    skipped         bigint NOT NULL DEFAULT 0,
    cancelled       bigint NOT NULL DEFAULT 0,
    updated_at      timestamptz NOT NULL DEFAULT now()
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 1);
CREATE INDEX job_status_tenant ON cronstream.job_status (tenant, job_id);
COMMENT ON TABLE cronstream.job_status IS 'One row a job that ever ran, was skipped or deleted, at most two seconds behind.';

-- What runs now: attempts that began and have not ended.
CREATE TABLE cronstream.running_attempts (
    job_id          bigint NOT NULL,
    scheduled_time  timestamptz NOT NULL,
    request_id      bigint NOT NULL,
    attempt         integer NOT NULL,
    tenant          text NOT NULL,
    name            text NOT NULL,
    started_at      timestamptz NOT NULL,
    worker          text NOT NULL,
    PRIMARY KEY (job_id, scheduled_time, request_id, attempt)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 1);
COMMENT ON TABLE cronstream.running_attempts IS 'Attempts that began and have not ended, at most two seconds behind.';

-- Up to where outcomes are in job_status. By the topic's own id, since a topic made anew counts from 0.
CREATE TABLE cronstream.outcomes_read (
    topic_id     text NOT NULL,
    partition    integer NOT NULL,
    next_offset  bigint NOT NULL,
    PRIMARY KEY (topic_id, partition)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);

-- ---- dead letters ----------------------------------------------------------------------------------

-- Filled from the dead-letter topic. A letter that was produced twice has one identity, and one row.
CREATE TABLE cronstream.dead_letters (
    letter_id       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    identity        bytea NOT NULL UNIQUE,
    state           text NOT NULL DEFAULT 'open' CHECK (state IN ('open', 'redriven', 'discarded')),
    reason          text NOT NULL,
    stage           text NOT NULL,           -- who set it aside
    error           text NOT NULL,
    at              timestamptz NOT NULL,    -- when it was set aside
    topic           text NOT NULL,           -- where the record stood
    partition       integer NOT NULL,
    "offset"        bigint NOT NULL,
    job_ids         bigint[] NOT NULL DEFAULT '{}',   -- of all its items
    tenant          text,                    -- of the one job that it is about; NULL: of several, or unknown
    name            text,
    scheduled_time  timestamptz,             -- of the one run that it is about, and so below
    request_id      bigint,
    attempts        integer,
    idempotency_key text,
    key             bytea,
    value           bytea NOT NULL,
    headers         jsonb NOT NULL DEFAULT '[]',      -- the record's own: [name, base64]
    cut             boolean NOT NULL DEFAULT false,   -- value is only its beginning
    letter_partition integer NOT NULL,       -- where the letter stands in the dead-letter topic
    letter_offset   bigint NOT NULL,
    decided_at      timestamptz,
    decided_by      text
);
CREATE INDEX dead_letters_open ON cronstream.dead_letters (letter_id) WHERE state = 'open';
CREATE INDEX dead_letters_job_ids ON cronstream.dead_letters USING gin (job_ids);
CREATE INDEX dead_letters_at ON cronstream.dead_letters (at);
COMMENT ON TABLE cronstream.dead_letters IS 'Records set aside, with what became of them: cronstream dead-letters lists, redrives and discards.';

-- What a redrive of a run is found by: a letter that comes after it is decided already.
CREATE INDEX requests_redrives ON cronstream.requests (job_id, scheduled_time, run_request_id) WHERE kind = 'redrive';

-- The last attempt of a run that history or a dead letter tells of, 0 where only its request does; NULL: no such run is
-- known.
CREATE FUNCTION cronstream.last_attempt_of(job_id bigint, scheduled_time timestamptz, request_id bigint) RETURNS int
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on
BEGIN ATOMIC
    SELECT max(known.attempt) FROM (
        SELECT 0 AS attempt FROM cronstream.requests q
        WHERE q.number = last_attempt_of.request_id AND q.job_id = last_attempt_of.job_id
          AND (q.kind = 'run-now' AND q.scheduled_time = last_attempt_of.scheduled_time
            OR q.kind = 'backfill' AND last_attempt_of.scheduled_time BETWEEN (q.answer ->> 'begins')::timestamptz AND q.ends)
        UNION ALL
        SELECT r.attempt FROM cronstream.job_runs r
        WHERE (r.job_id, r.scheduled_time, r.request_id) = (last_attempt_of.job_id, last_attempt_of.scheduled_time, last_attempt_of.request_id)
        UNION ALL
        SELECT coalesce(l.attempts, 0) FROM cronstream.dead_letters l
        WHERE l.job_ids @> ARRAY[last_attempt_of.job_id]
          AND (l.scheduled_time, l.request_id) = (last_attempt_of.scheduled_time, last_attempt_of.request_id)
    ) AS known;
END;

-- Why a run is not to be tried again after that attempt, as far as history tells: it runs, it succeeded, it never began.
-- NULL: nothing speaks against it.
CREATE FUNCTION cronstream.why_not_again(job_id bigint, scheduled_time timestamptz, request_id bigint, attempts int) RETURNS text
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on
BEGIN ATOMIC
    SELECT why FROM (
        SELECT 1 AS rank, format('is not over: attempt %s of this run runs since %s', r.attempt, cronstream.utc(r.started_at)) AS why
        FROM cronstream.running_attempts r
        WHERE (r.job_id, r.scheduled_time, r.request_id) = (why_not_again.job_id, why_not_again.scheduled_time, why_not_again.request_id)
          AND r.attempt >= why_not_again.attempts
        UNION ALL
        SELECT 2, format('%s: attempt %s of this run did', r.outcome, r.attempt) FROM cronstream.job_runs r
        WHERE (r.job_id, r.scheduled_time, r.request_id) = (why_not_again.job_id, why_not_again.scheduled_time, why_not_again.request_id)
          AND r.outcome IN ('succeeded', 'cancelled')
        UNION ALL
        SELECT 3, format('did not take place: this run was skipped (%s)', r.reason) FROM cronstream.job_runs r
        WHERE (r.job_id, r.scheduled_time, r.request_id) = (why_not_again.job_id, why_not_again.scheduled_time, why_not_again.request_id)
          AND r.outcome = 'skipped'
    ) AS known ORDER BY rank LIMIT 1;
END;

-- Open letters about an end of a run that a request tries again are redriven, whoever asked for it.
CREATE FUNCTION cronstream.decide_redriven(job_id bigint, scheduled_time timestamptz, request_id bigint, attempts int) RETURNS void
    LANGUAGE sql SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on
BEGIN ATOMIC
    UPDATE cronstream.dead_letters l SET state = 'redriven', decided_at = q.requested_at, decided_by = q.requested_by
    FROM cronstream.requests q
    WHERE q.kind = 'redrive' AND q.job_id = decide_redriven.job_id AND q.scheduled_time = decide_redriven.scheduled_time
      AND q.run_request_id = decide_redriven.request_id AND q.attempt = decide_redriven.attempts + 1
      AND l.state = 'open' AND l.job_ids @> ARRAY[q.job_id] AND l.scheduled_time = q.scheduled_time
      AND l.request_id = q.run_request_id AND l.attempts = decide_redriven.attempts;
END;

-- Try a run again that was given up: the same run with the same idempotency key, its attempts numbered on from
-- `attempts` (the number of the last one) with a fresh budget. Without an id, redriving the same end twice is done once.
-- Its dead letter is redriven by it.
CREATE FUNCTION cronstream.redrive(
    job_id bigint, scheduled_time timestamptz, request_id bigint, attempts int, id text DEFAULT NULL) RETURNS jsonb
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on AS $$
#variable_conflict use_column
DECLARE
    job     record;
    request record;
    run     text;
    last    int;
    why     text;
    checked boolean;
BEGIN
    IF attempts IS NULL OR attempts NOT BETWEEN 1 AND 1000000 THEN
        checked := cronstream.refuse('attempts', 'must be the number of the last attempt, from 1', attempts::text, 'As the dead letter says.');
    ELSIF (scheduled_time BETWEEN '0001-01-03 00:00:00+00' AND '9999-12-29 00:00:00+00') IS NOT TRUE THEN
        checked := cronstream.refuse('scheduled_time', 'must be an instant', scheduled_time::text, 'As the dead letter says.');
    ELSIF request_id IS NULL OR request_id < 0 THEN
        checked := cronstream.refuse('request_id', 'must be 0, or a request''s number', request_id::text, 'As the dead letter says.');
    END IF;
    SELECT d.tenant, d.name INTO job FROM cronstream.job_definitions d WHERE d.job_id = redrive.job_id;
    IF NOT FOUND THEN
        RAISE EXCEPTION USING ERRCODE = 'no_data_found',
            MESSAGE = format('there is no job %s any more', redrive.job_id),
            HINT = 'A run of a deleted job cannot be tried again; discard its dead letter.',
            SCHEMA = 'cronstream', TABLE = 'job_definitions', COLUMN = 'job_id';
    END IF;
    last := cronstream.last_attempt_of(job_id, scheduled_time, request_id);
    IF last IS NULL THEN
        checked := cronstream.refuse(CASE WHEN request_id > 0 THEN 'request_id' ELSE 'scheduled_time' END,
            format('belongs to no run of job %s that is known', job_id),
            CASE WHEN request_id > 0 THEN request_id::text ELSE cronstream.utc(scheduled_time) END,
            'Take job_id, scheduled_time and request_id together from cronstream.dead_letters or cronstream.job_runs, where a run is a few seconds after its end.');
    END IF;
    run := format('%s-%s-%s', job_id, cronstream.us(scheduled_time), request_id);
    request := cronstream.begin_request('redrive', job.tenant, job.name, coalesce(id, format('redrive %s after attempt %s', run, attempts)));
    IF request.answer IS NULL AND last > attempts THEN
        checked := cronstream.refuse('attempts', format('is not the last: attempt %s of this run is known', last), attempts::text,
            'As the newest dead letter of the run says.');
    ELSIF request.answer IS NULL AND last BETWEEN 1 AND attempts - 1 THEN
        checked := cronstream.refuse('attempts', format('is none that is known: the last of this run is %s', last), attempts::text,
            'As the newest dead letter of the run says.');
    END IF;
    why := cronstream.why_not_again(job_id, scheduled_time, request_id, attempts);
    IF request.answer IS NULL AND why IS NOT NULL THEN
        checked := cronstream.refuse('attempts', why, attempts::text,
            'Only a run that was given up is tried again; run_now and backfill run a job anew.');
    END IF;
    request.answer := coalesce(request.answer, cronstream.finish_request(request.number, 'open', job_id,
        jsonb_build_object('job_id', job_id, 'idempotency_key', run, 'attempt', attempts + 1),
        scheduled_time => scheduled_time, run_request_id => request_id, attempt => attempts + 1));
    PERFORM cronstream.decide_redriven(job_id, scheduled_time, request_id, attempts);
    RETURN request.answer;
END $$;

-- The same with the instant as text, which is what a bare literal is taken for.
CREATE FUNCTION cronstream.redrive(
    job_id bigint, scheduled_time text, request_id bigint, attempts int, id text DEFAULT NULL) RETURNS jsonb
    LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on
    RETURN cronstream.redrive(job_id, cronstream.read_instant('scheduled_time', scheduled_time), request_id, attempts, id);
