-- History: one row an attempt, and one for every scheduled time that did not run.
-- Append-only; UTC days of the scheduled time; no default partition, so that old days
-- can be detached concurrently.

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

-- Make the partition of a UTC day if it is not there; true if it was made now. Safe to
-- call from any process at once. Built beside and then attached, because CREATE TABLE
-- PARTITION OF would lock readers out.
CREATE FUNCTION cronstream.ensure_job_runs_partition(day date) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    part CONSTANT text := 'job_runs_' || to_char(day, 'YYYYMMDD');
    begins CONSTANT timestamptz := day::timestamp AT TIME ZONE 'UTC';
BEGIN
    IF day IS NULL OR NOT isfinite(day) OR day NOT BETWEEN '0001-01-01' AND '9999-12-31' THEN
        RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value', MESSAGE = format('no partition for day %L', day);
    END IF;
    IF to_regclass('cronstream.' || part) IS NOT NULL THEN
        RETURN false;
    END IF;
    PERFORM pg_advisory_xact_lock(hashtextextended('cronstream.job_runs partitions', 0));
    -- from the catalog itself: to_regclass may answer from what this session knew before it waited
    IF EXISTS (SELECT FROM pg_class WHERE relname = part AND relnamespace = 'cronstream'::regnamespace) THEN
        RETURN false;
    END IF;
    EXECUTE format('CREATE TABLE cronstream.%I (LIKE cronstream.job_runs INCLUDING DEFAULTS INCLUDING CONSTRAINTS INCLUDING INDEXES)', part);
    EXECUTE format('ALTER TABLE cronstream.job_runs ATTACH PARTITION cronstream.%I FOR VALUES FROM (%L) TO (%L)',
                   part, begins, begins + interval '24 hours');
    RETURN true;
END $$;

SELECT cronstream.ensure_job_runs_partition((now() AT TIME ZONE 'UTC')::date + ahead) FROM generate_series(-1, 7) AS ahead;
