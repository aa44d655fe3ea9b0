-- Requests: what users ask for beside the schedule, in SQL or by a command in Kafka. One row a request,
-- by the caller's own id: a repeated id changes nothing and gets the stored answer, and is refused of another
-- operation or job. The functions below, and those of 0010_edits.sql, are the one implementation of every operation;
-- both interfaces call them. Those that users call, the doors, are the right to what they do, and run as the owner: nobody
-- else writes requests, so what the leader finds open has passed a door's checks.

CREATE TABLE cronstream.requests (
    number        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,   -- the request_id of its runs
    tenant        text NOT NULL,
    id            text NOT NULL,            -- the caller's; made up where there was none
    kind          text NOT NULL CHECK (kind IN ('run-now', 'backfill', 'redrive', 'upsert', 'patch', 'delete', 'pause', 'resume', 'one-shot',
                                              'unknown')),   -- of a command that was refused
    name          text,
    job_id        bigint,
    scheduled_time  timestamptz,            -- of the run, where it is one: the moment of a run-now, the old time of a redrive
    run_request_id  bigint,                 -- of the run that a redrive tries again
    attempt       int,                      -- that it begins with
    cursor        timestamptz,              -- of a backfill: up to here its scheduled times are published
    ends          timestamptz,              -- and there it ends
    answer        jsonb,                    -- NULL only inside the transaction that makes it
    state         text NOT NULL DEFAULT 'done' CHECK (state IN ('open', 'done', 'cancelled', 'refused')),
    reason        text,                     -- why it was cancelled or refused
    published     bigint NOT NULL DEFAULT 0,    -- runs so far
    requested_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    requested_by  text NOT NULL DEFAULT session_user,
    ended_at      timestamptz,
    UNIQUE (tenant, id),
    -- what the leader goes by is there, whoever wrote the row
    CHECK (state <> 'open' OR job_id IS NOT NULL AND CASE kind
        WHEN 'run-now' THEN scheduled_time IS NOT NULL
        WHEN 'redrive' THEN scheduled_time IS NOT NULL AND run_request_id IS NOT NULL AND attempt IS NOT NULL
        WHEN 'backfill' THEN cursor IS NOT NULL AND ends IS NOT NULL
        ELSE false END),
    CHECK (scheduled_time BETWEEN '0001-01-03 00:00:00+00' AND '9999-12-29 00:00:00+00'),
    CHECK (attempt BETWEEN 1 AND 1000001)
) WITH (fillfactor = 85);
COMMENT ON TABLE cronstream.requests IS 'Run-nows, backfills, redrives and commands by the caller''s id, with cursor and answer.';

-- What the leader has yet to publish, and what capture reads: inserted with the request, deleted with its end.
CREATE TABLE cronstream.open_requests (
    number  bigint PRIMARY KEY,
    kind    text NOT NULL CHECK (kind IN ('run-now', 'backfill', 'redrive'))
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000,
        autovacuum_vacuum_insert_scale_factor = 0, autovacuum_vacuum_insert_threshold = 10000);
COMMENT ON TABLE cronstream.open_requests IS 'Requests with runs to publish: the leader deletes them when they are done. Normally empty.';

-- An instant as answers show it.
CREATE FUNCTION cronstream.utc(instant timestamptz) RETURNS text
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    RETURN to_char(instant AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"');

-- Take a request in, or find the answer of the same id. A caller that comes at the same moment waits here.
-- An id that was used for another operation or another job is a unique violation: nobody gets the answer to
-- something else. A job that was renamed meanwhile is the same job.
-- It and finish_request run with the rights of the door that calls them: to anybody else they are of no use.
CREATE FUNCTION cronstream.begin_request(kind text, tenant text, name text, id text, OUT number bigint, OUT answer jsonb)
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on AS $$
#variable_conflict use_column
DECLARE
    checked boolean;
    earlier cronstream.requests;
BEGIN
    IF begin_request.tenant IS NULL THEN
        checked := cronstream.refuse('tenant', 'is missing', NULL, 'It is ''default'' where none was chosen.');
    END IF;
    -- what people mostly write is settled by one look
    IF begin_request.tenant !~ '^[ -~]*[!-~][ -~]*$' OR length(begin_request.tenant) > 255 THEN
        checked := cronstream.check_name('tenant', begin_request.tenant, 255);
    END IF;
    IF begin_request.name !~ '^[ -~]*[!-~][ -~]*$' OR length(begin_request.name) > 255 THEN
        checked := cronstream.check_name('name', begin_request.name, 255);
    END IF;
    IF begin_request.id !~ '^[ -~]*[!-~][ -~]*$' OR length(begin_request.id) > 200 THEN
        checked := cronstream.check_name('id', begin_request.id, 200);
    END IF;
    INSERT INTO cronstream.requests AS r (kind, tenant, name, id)
    VALUES (begin_request.kind, begin_request.tenant, begin_request.name, coalesce(begin_request.id, gen_random_uuid()::text))
    ON CONFLICT (tenant, id) DO NOTHING
    RETURNING r.number INTO number;
    IF NOT FOUND THEN
        SELECT r.* INTO earlier FROM cronstream.requests r WHERE r.tenant = begin_request.tenant AND r.id = begin_request.id;
        answer := earlier.answer;
        IF earlier.kind <> begin_request.kind OR earlier.name IS DISTINCT FROM begin_request.name AND NOT EXISTS (
            SELECT FROM cronstream.job_definitions d
            WHERE d.job_id = earlier.job_id AND d.tenant = begin_request.tenant AND d.name = begin_request.name) THEN
            RAISE EXCEPTION USING ERRCODE = 'unique_violation', MESSAGE = 'id was used before, for something else',
                DETAIL = format('id is %L. It was used for %s%s at %s%s.', left(earlier.id, 200),
                    CASE earlier.kind WHEN 'unknown' THEN 'a command' ELSE earlier.kind END,
                    ' of ' || earlier.tenant || '/' || earlier.name, cronstream.utc(earlier.requested_at),
                    ', which was refused: ' || CASE earlier.state WHEN 'refused' THEN rtrim(earlier.reason, '.') END),
                HINT = 'Choose another id: what is asked for once has an id of its own.',
                SCHEMA = 'cronstream', TABLE = 'requests', COLUMN = 'id';
        END IF;
    END IF;
END $$;

-- Store what became of a request in the same transaction, once; returns the whole answer.
-- `details` go into the answer; 'open' hands it to the leader, who goes by the rest.
CREATE FUNCTION cronstream.finish_request(
    number bigint, state text, job_id bigint, details jsonb,
    scheduled_time timestamptz DEFAULT NULL, run_request_id bigint DEFAULT NULL, attempt int DEFAULT NULL,
    cursor timestamptz DEFAULT NULL, ends timestamptz DEFAULT NULL) RETURNS jsonb
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on AS $$
#variable_conflict use_column
DECLARE
    told jsonb;
BEGIN
    UPDATE cronstream.requests r
    SET state = finish_request.state, job_id = finish_request.job_id, scheduled_time = finish_request.scheduled_time,
        run_request_id = finish_request.run_request_id, attempt = finish_request.attempt,
        cursor = finish_request.cursor, ends = finish_request.ends, reason = details -> 'error' ->> 'message',
        ended_at = CASE WHEN finish_request.state <> 'open' THEN clock_timestamp() END,
        answer = jsonb_build_object('id', r.id, 'command', r.kind, 'tenant', r.tenant, 'name', r.name,
                                    'accepted', finish_request.state <> 'refused') || details
    WHERE r.number = finish_request.number AND r.answer IS NULL
    RETURNING r.answer INTO told;
    IF finish_request.state = 'open' AND told IS NOT NULL THEN
        INSERT INTO cronstream.open_requests (number, kind) SELECT r.number, r.kind FROM cronstream.requests r WHERE r.number = finish_request.number;
    END IF;
    RETURN told;
END $$;

-- The job of that name; `locked` against every other edit, so that what is answered of it is true.
CREATE FUNCTION cronstream.find_job(tenant text, name text, locked boolean DEFAULT false) RETURNS bigint
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on AS $$
#variable_conflict use_column
DECLARE
    found_id  bigint;
    elsewhere text;
    checked   boolean;
BEGIN
    IF find_job.name IS NULL THEN
        checked := cronstream.refuse('name', 'is missing', NULL, 'Name the job by tenant and name.');
    END IF;
    IF locked THEN
        SELECT d.job_id INTO found_id FROM cronstream.job_definitions d WHERE d.tenant = find_job.tenant AND d.name = find_job.name FOR UPDATE;
    ELSE
        SELECT d.job_id INTO found_id FROM cronstream.job_definitions d WHERE d.tenant = find_job.tenant AND d.name = find_job.name;
    END IF;
    IF found_id IS NULL THEN
        SELECT format('%s/%s', d.tenant, d.name) INTO elsewhere FROM cronstream.job_definitions d
        WHERE (d.tenant, d.name) IN ((lower(find_job.tenant), lower(find_job.name)), (find_job.name, find_job.tenant), ('default', find_job.name)) LIMIT 1;
        RAISE EXCEPTION USING ERRCODE = 'no_data_found',
            MESSAGE = format('there is no job %s/%s', left(find_job.tenant, 255), left(find_job.name, 255)),
            HINT = coalesce('Did you mean ' || elsewhere || '? ', '') || 'Tenant and name are matched exactly.',
            SCHEMA = 'cronstream', TABLE = 'job_definitions', COLUMN = 'name';
    END IF;
    RETURN found_id;
END $$;

-- An instant that a caller wrote as text; where it is none, the error names the parameter.
CREATE FUNCTION cronstream.read_instant(parameter text, written text) RETURNS timestamptz
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on AS $$
DECLARE
    checked boolean;
BEGIN
    RETURN written::timestamptz;
EXCEPTION WHEN data_exception THEN
    checked := cronstream.refuse(parameter, 'is no instant', written, 'Write it with its offset: ''2026-01-01T00:00:00Z''.');
END $$;

-- Forget requests that ended longer ago than this; from then on their ids are new again. Returns how many.
CREATE FUNCTION cronstream.forget_requests(older_than interval) RETURNS bigint
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on AS $$
DECLARE
    gone    bigint;
    checked boolean;
BEGIN
    IF (older_than >= '0'::interval) IS NOT TRUE THEN
        checked := cronstream.refuse('older_than', 'must be an age', older_than::text, 'For example ''30 days''.');
    END IF;
    DELETE FROM cronstream.requests WHERE state <> 'open' AND ended_at < clock_timestamp() - older_than;
    GET DIAGNOSTICS gone = ROW_COUNT;
    RETURN gone;
END $$;

-- ---- runs ------------------------------------------------------------------------------------------

-- Run a job once, now, whatever its schedule says and paused or not. Its scheduled time is this moment.
CREATE FUNCTION cronstream.run_now(tenant text, name text, id text DEFAULT NULL) RETURNS jsonb
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on AS $$
DECLARE
    request  record;
    found_id bigint;
    moment   CONSTANT timestamptz := clock_timestamp();
BEGIN
    request := cronstream.begin_request('run-now', tenant, name, id);
    IF request.answer IS NOT NULL THEN
        RETURN request.answer;
    END IF;
    found_id := cronstream.find_job(tenant, name);
    RETURN cronstream.finish_request(request.number, 'open', found_id,
        jsonb_build_object('job_id', found_id, 'request_id', request.number, 'scheduled_time', cronstream.utc(moment)),
        scheduled_time => moment);
END $$;

-- How many runs a backfill may have.
CREATE FUNCTION cronstream.backfill_limit() RETURNS bigint
    LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN 100000;

-- Where an interval counts from: its own anchor, the one that the leader found, or what is no later than that will be.
CREATE FUNCTION cronstream.counts_from(d cronstream.job_definitions) RETURNS timestamptz
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on
    RETURN coalesce(d.anchor, (SELECT s.anchor FROM cronstream.schedules s WHERE s.job_id = d.job_id), d.updated_at);

-- Run a job for every scheduled time in a range that is over, both ends included, at the leader's bounded rate.
CREATE FUNCTION cronstream.backfill(tenant text, name text, begins timestamptz, ends timestamptz, id text DEFAULT NULL) RETURNS jsonb
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on AS $$
DECLARE
    request  record;
    found_id bigint;
    found    cronstream.job_definitions;
    origin   timestamptz;
    runs     bigint;
    what     text;
    checked  boolean;
BEGIN
    request := cronstream.begin_request('backfill', tenant, name, id);
    IF request.answer IS NOT NULL THEN
        RETURN request.answer;
    END IF;
    found_id := cronstream.find_job(tenant, name);
    IF (begins BETWEEN '0001-01-03 00:00:00+00' AND '9999-12-29 00:00:00+00') IS NOT TRUE THEN
        checked := cronstream.refuse('begins', 'must be an instant', begins::text, 'The first instant of the range: ''2026-01-01T00:00:00Z''.');
    ELSIF (ends >= begins) IS NOT TRUE THEN
        checked := cronstream.refuse('ends', format('is not an instant at or after begins %L', cronstream.utc(begins)), ends::text,
            'The last instant of the range, included.');
    ELSIF ends > clock_timestamp() THEN
        checked := cronstream.refuse('ends', 'is in the future', ends::text,
            'A backfill runs times that are over; the schedule itself runs those to come.');
    END IF;
    SELECT d.* INTO found FROM cronstream.job_definitions d WHERE d.job_id = found_id;
    origin := cronstream.counts_from(found);
    runs := cronstream.times_within(found, origin, begins, ends, cronstream.backfill_limit());
    what := coalesce('every ' || found.every, 'cron ' || quote_literal(left(found.cron, 60)), 'run_at ' || cronstream.utc(found.run_at));
    IF runs > cronstream.backfill_limit() THEN
        checked := cronstream.refuse('ends', format('leaves more than %s runs of %s', cronstream.backfill_limit(), what), ends::text,
            'Ask for a shorter range, and for the rest by further backfills.');
    ELSIF runs = 0 THEN
        checked := cronstream.refuse('ends', format('leaves no run: %s has no scheduled time from %s to %s', what, cronstream.utc(begins), cronstream.utc(ends)),
            ends::text, CASE
                WHEN found.every IS NOT NULL AND ends < origin THEN format('An interval begins at its anchor, %s: set anchor to an earlier instant, or ask for a range behind it.', cronstream.utc(origin))
                WHEN ends < found.starts_at OR begins > found.ends_at THEN 'The job has times between its starts_at and ends_at alone.'
                ELSE 'Ask for a range that holds one.' END);
    END IF;
    RETURN cronstream.finish_request(request.number, 'open', found_id,
        jsonb_build_object('job_id', found_id, 'request_id', request.number, 'begins', cronstream.utc(begins), 'ends', cronstream.utc(ends), 'runs', runs),
        cursor => begins - interval '1 microsecond', ends => ends);
END $$;

-- The same with instants as text, which is what a bare literal is taken for.
CREATE FUNCTION cronstream.backfill(tenant text, name text, begins text, ends text, id text DEFAULT NULL) RETURNS jsonb
    LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on
    RETURN cronstream.backfill(tenant, name, cronstream.read_instant('begins', begins), cronstream.read_instant('ends', ends), id);
