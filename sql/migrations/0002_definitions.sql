-- Job definitions: rows that users own, validated in their own transaction,
-- and job_changes: one row an edit, which is what capture reads.

CREATE SEQUENCE cronstream.revisions;

CREATE TABLE cronstream.job_definitions (
    job_id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant           text NOT NULL DEFAULT 'default',
    name             text NOT NULL,
    -- exactly one of the three
    cron             text,
    every            interval,
    run_at           timestamptz,
    anchor           timestamptz,              -- of every; without one, the creating commit
    timezone         text NOT NULL DEFAULT 'UTC',
    handler          text NOT NULL,
    payload          jsonb DEFAULT '{}',       -- SQL NULL and JSON null are kept apart
    starts_at        timestamptz,
    ends_at          timestamptz,
    enabled          boolean NOT NULL DEFAULT true,
    misfire_policy   text NOT NULL DEFAULT 'FIRE_NOW',
    misfire_grace    interval NOT NULL DEFAULT '60 seconds',
    catch_up_limit   integer NOT NULL DEFAULT 100,
    overlap_policy   text NOT NULL DEFAULT 'allow',
    dst_gap          text NOT NULL DEFAULT 'auto',
    dst_overlap      text NOT NULL DEFAULT 'auto',
    spread_seconds   integer NOT NULL DEFAULT 0,
    max_attempts     integer NOT NULL DEFAULT 5,
    backoff_seconds  double precision NOT NULL DEFAULT 30,
    backoff_factor   double precision NOT NULL DEFAULT 2,
    max_backoff      interval NOT NULL DEFAULT '1 hour',
    jitter           text NOT NULL DEFAULT 'full',
    timeout_seconds  double precision NOT NULL DEFAULT 300,
    -- set by the trigger, whatever the statement says; grows with every edit of the row
    revision         bigint NOT NULL,
    created_at       timestamptz NOT NULL DEFAULT now(),
    updated_at       timestamptz NOT NULL DEFAULT now(),
    UNIQUE (tenant, name)
);

CREATE TABLE cronstream.job_changes (
    change_id   bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    job_id      bigint NOT NULL,
    revision    bigint NOT NULL,
    kind        text NOT NULL CHECK (kind IN ('insert', 'update', 'delete')),
    previous    jsonb CHECK ((previous IS NULL) = (kind = 'insert')),
    changed_at  timestamptz NOT NULL DEFAULT clock_timestamp()
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000,
        autovacuum_vacuum_insert_scale_factor = 0, autovacuum_vacuum_insert_threshold = 10000);
COMMENT ON TABLE cronstream.job_changes IS
    'Open edits: the definitions'' trigger inserts, the coordinator deletes when planned. Normally empty.';
CREATE INDEX job_changes_job_id ON cronstream.job_changes (job_id);

-- Microseconds, exact: since the Unix epoch, or of a span (a day is 24 hours).
CREATE FUNCTION cronstream.us(instant timestamptz) RETURNS bigint
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    RETURN (extract(epoch FROM instant) * 1000000)::bigint;
CREATE FUNCTION cronstream.us(span interval) RETURNS bigint
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    RETURN (extract(epoch FROM span) * 1000000)::bigint;

-- The handlers that workers know: the one place that names them.
CREATE FUNCTION cronstream.handlers() RETURNS text[]
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN ARRAY['http', 'command', 'log'];

-- Refuse a row: which column, what is wrong, the offending value, the remedy; where a part of a
-- longer value offends, that part.
CREATE FUNCTION cronstream.refuse(col text, problem text, offending text, remedy text, part text DEFAULT NULL) RETURNS void
    LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION USING
        ERRCODE = 'invalid_parameter_value',
        MESSAGE = format('%s %s', col, problem),
        DETAIL = CASE WHEN offending IS NULL THEN format('%s is NULL.', col)
                      WHEN length(offending) > 200 THEN format('%s is %s... (%s characters).', col, quote_literal(left(offending, 200)), length(offending))
                      ELSE format('%s is %s.', col, quote_literal(offending)) END || coalesce(' It has ' || part || '.', ''),
        HINT = remedy,
        SCHEMA = 'cronstream', TABLE = 'job_definitions', COLUMN = col;
END $$;

-- What a handler needs of its payload: true, or raises through refuse().
CREATE FUNCTION cronstream.check_payload(handler text, payload jsonb) RETURNS boolean
    LANGUAGE plpgsql AS $$
BEGIN
    IF octet_length(payload::text) > 65536 THEN
        PERFORM cronstream.refuse('payload', format('has %s bytes as text, more than 65536', octet_length(payload::text)),
            payload::text, 'Keep the data elsewhere and put a reference to it into the payload.');
    END IF;
    IF handler = 'http' THEN
        IF (jsonb_typeof(payload -> 'url') = 'string'
            AND payload ->> 'url' ~* '^https?://[^[:space:]/?#]+([/?#][^[:space:]]*)?$') IS NOT TRUE THEN
            PERFORM cronstream.refuse('payload', 'needs an absolute http or https url for handler http',
                coalesce(payload -> 'url', payload)::text, '{"url": "https://example.org/hook"}');
        END IF;
        IF payload ? 'method' AND (payload ->> 'method' ~ '^(GET|HEAD|POST|PUT|PATCH|DELETE)$') IS NOT TRUE THEN
            PERFORM cronstream.refuse('payload', 'has an unknown method', (payload -> 'method')::text,
                'One of GET, HEAD, POST, PUT, PATCH, DELETE; POST when left out.');
        END IF;
        IF payload ? 'headers' AND (jsonb_typeof(payload -> 'headers') <> 'object'
            OR jsonb_path_exists(payload, '$.headers.* ? (@.type() != "string")')) THEN
            PERFORM cronstream.refuse('payload', 'has headers that are not an object of strings',
                (payload -> 'headers')::text, '{"headers": {"Authorization": "..."}}');
        END IF;
    ELSIF handler = 'command' THEN
        IF jsonb_typeof(payload -> 'argv') IS DISTINCT FROM 'array'
           OR jsonb_path_exists(payload, 'strict $.argv[*] ? (@.type() != "string")')
           OR coalesce(payload -> 'argv' ->> 0, '') = '' THEN
            PERFORM cronstream.refuse('payload', 'needs argv, a non-empty list of strings, for handler command',
                coalesce(payload -> 'argv', payload)::text, '{"argv": ["/usr/bin/env", "true"]}');
        END IF;
    END IF;
    RETURN true;
END $$;

-- Says which of the bounded columns is out of bounds. Called only when one is.
-- NaN is greater than every number, so the upper bounds keep it and infinity out.
CREATE FUNCTION cronstream.explain_bounds(d cronstream.job_definitions) RETURNS void
    LANGUAGE plpgsql AS $$
DECLARE
    bad record;
BEGIN
    SELECT * INTO bad FROM (VALUES
        ('misfire_policy', d.misfire_policy, d.misfire_policy IN ('FIRE_NOW', 'SKIP', 'CATCH_UP'), 'One of FIRE_NOW, SKIP, CATCH_UP.'),
        ('overlap_policy', d.overlap_policy, d.overlap_policy IN ('allow', 'queue', 'skip'), 'One of allow, queue, skip.'),
        ('dst_gap', d.dst_gap, d.dst_gap IN ('auto', 'shift', 'skip'), 'One of auto, shift, skip.'),
        ('dst_overlap', d.dst_overlap, d.dst_overlap IN ('auto', 'first', 'second', 'both'), 'One of auto, first, second, both.'),
        ('jitter', d.jitter, d.jitter IN ('full', 'equal', 'none'), 'One of full, equal, none.'),
        ('misfire_grace', d.misfire_grace::text, d.misfire_grace BETWEEN interval '0' AND interval '1 day', 'From 0 to 1 day.'),
        ('catch_up_limit', d.catch_up_limit::text, d.catch_up_limit BETWEEN 1 AND 10000, 'From 1 to 10000.'),
        ('spread_seconds', d.spread_seconds::text, d.spread_seconds BETWEEN 0 AND 86400, 'From 0 to 86400.'),
        ('max_attempts', d.max_attempts::text, d.max_attempts BETWEEN 1 AND 1000, 'From 1 to 1000.'),
        ('backoff_seconds', d.backoff_seconds::text, d.backoff_seconds BETWEEN 0 AND 86400, 'From 0 to 86400.'),
        ('backoff_factor', d.backoff_factor::text, d.backoff_factor BETWEEN 1 AND 100, 'From 1 to 100.'),
        ('max_backoff', d.max_backoff::text, d.max_backoff BETWEEN interval '0' AND interval '24 hours', 'From 0 to 24 hours.'),
        ('timeout_seconds', d.timeout_seconds::text, d.timeout_seconds > 0 AND d.timeout_seconds <= 86400, 'More than 0, at most 86400.')
    ) AS bounds (col, given, good, remedy) WHERE NOT good LIMIT 1;
    PERFORM cronstream.refuse(bad.col, 'is not allowed', bad.given, bad.remedy);
END $$;

-- BEFORE each row: validate, stamp the revision. An UPDATE that changes nothing keeps
-- its revision, by which the change trigger knows it. A NULL in a NOT NULL column
-- passes here and is refused by its constraint.
-- One long function of plain IFs on purpose: PL/pgSQL evaluates those without the
-- executor, a PERFORM or a composite argument costs as much as ten of them.
CREATE FUNCTION cronstream.check_and_stamp() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    -- what a Python datetime can hold, whatever the zone; keeps infinity out as well
    earliest CONSTANT timestamptz := '0001-01-03 00:00:00+00';
    latest   CONSTANT timestamptz := '9999-12-29 00:00:00+00';
    years    CONSTANT text := 'A finite instant in the years 1 to 9999.';
    checked  boolean;
BEGIN
    IF TG_OP = 'INSERT' THEN
        -- OVERRIDING SYSTEM VALUE could bring a used id back
        IF NEW.job_id <> currval('cronstream.job_definitions_job_id_seq') THEN
            PERFORM cronstream.refuse('job_id', 'cannot be chosen', NEW.job_id::text, 'Leave job_id out; RETURNING job_id tells it.');
        END IF;
        NEW.created_at := now();
    ELSE
        IF NEW.job_id <> OLD.job_id THEN
            PERFORM cronstream.refuse('job_id', 'cannot be changed', NEW.job_id::text, 'Delete the job and insert a new one.');
        END IF;
        NEW.created_at := OLD.created_at;
        NEW.updated_at := OLD.updated_at;
        NEW.revision := OLD.revision;
        IF NEW *= OLD THEN
            RETURN NEW;
        END IF;
    END IF;
    IF num_nonnulls(NEW.cron, NEW.every, NEW.run_at) <> 1 THEN
        PERFORM cronstream.refuse(CASE WHEN NEW.cron IS NOT NULL OR num_nonnulls(NEW.every, NEW.run_at) = 0 THEN 'cron' ELSE 'every' END,
            'is not the only schedule', format('cron %s, every %s, run_at %s',
                coalesce(quote_literal(NEW.cron), 'NULL'), coalesce(quote_literal(NEW.every), 'NULL'), coalesce(quote_literal(NEW.run_at), 'NULL')),
            'Set exactly one of cron, every and run_at.');
    END IF;
    IF NEW.cron IS NOT NULL THEN
        -- the cron language is the seventh migration's; what people mostly write is settled by one look
        IF length(NEW.cron) > 1000 OR upper(NEW.cron COLLATE "C") !~ cronstream.plain_cron() THEN
            checked := cronstream.check_cron(NEW.cron, NEW.tenant, NEW.name);
        END IF;
    ELSIF NEW.every IS NOT NULL THEN
        IF extract(month FROM NEW.every) <> 0 OR extract(year FROM NEW.every) <> 0 THEN
            PERFORM cronstream.refuse('every', 'has months or years, which have no fixed length', NEW.every::text,
                'Use days, hours, minutes and seconds; for calendar months use cron.');
        ELSIF NEW.every < interval '1 second' THEN
            PERFORM cronstream.refuse('every', 'is shorter than one second', NEW.every::text, 'At least one second.');
        ELSIF NEW.every > interval '36500 days' THEN
            PERFORM cronstream.refuse('every', 'is longer than 36500 days', NEW.every::text, 'At most 36500 days.');
        END IF;
    ELSIF NEW.run_at NOT BETWEEN earliest AND latest THEN
        PERFORM cronstream.refuse('run_at', 'is out of range', NEW.run_at::text, years);
    END IF;
    IF NEW.anchor IS NOT NULL THEN
        IF NEW.every IS NULL THEN
            PERFORM cronstream.refuse('anchor', 'belongs to every', NEW.anchor::text, 'Leave it out, or set every.');
        ELSIF NEW.anchor NOT BETWEEN earliest AND latest THEN
            PERFORM cronstream.refuse('anchor', 'is out of range', NEW.anchor::text, years);
        END IF;
    END IF;
    IF NEW.starts_at NOT BETWEEN earliest AND latest THEN
        PERFORM cronstream.refuse('starts_at', 'is out of range', NEW.starts_at::text, years || ' Leave it out for no bound.');
    ELSIF NEW.ends_at NOT BETWEEN earliest AND latest THEN
        PERFORM cronstream.refuse('ends_at', 'is out of range', NEW.ends_at::text, years || ' Leave it out for no bound.');
    ELSIF NEW.starts_at >= NEW.ends_at THEN
        PERFORM cronstream.refuse('ends_at', format('is not after starts_at %L', NEW.starts_at), NEW.ends_at::text,
            'starts_at must lie before ends_at.');
    END IF;
    IF NEW.timezone <> 'UTC' AND NEW.timezone <> ALL (cronstream.zone_names()) THEN
        PERFORM cronstream.refuse('timezone', 'is not an IANA time zone', NEW.timezone, coalesce(
            (SELECT format('Did you mean %s? ', z.name) FROM cronstream.zones z
             WHERE lower(z.name) = lower(btrim(NEW.timezone)) OR lower(z.name) LIKE '%/' || lower(replace(btrim(NEW.timezone), ' ', '\_'))
             ORDER BY length(z.name) LIMIT 1), '') || 'Exact names, as in cronstream.zones: Europe/Berlin, America/New_York, UTC.');
    END IF;
    -- U+0001 to U+001F, U+007F to U+009F, and the line and paragraph separators
    IF NEW.name ~ '[\u0001-\u001f\u007f-\u009f\u2028\u2029]' OR NEW.name ~ '^ *$' OR length(NEW.name) > 255 THEN
        PERFORM cronstream.refuse('name', 'is empty, too long or has control characters', NEW.name, 'One to 255 printable characters.');
    ELSIF NEW.tenant <> 'default' AND
          (NEW.tenant ~ '[\u0001-\u001f\u007f-\u009f\u2028\u2029]' OR NEW.tenant ~ '^ *$' OR length(NEW.tenant) > 255) THEN
        PERFORM cronstream.refuse('tenant', 'is empty, too long or has control characters', NEW.tenant, 'One to 255 printable characters.');
    END IF;
    IF NEW.handler <> ALL (cronstream.handlers()) THEN
        PERFORM cronstream.refuse('handler', 'is not known', NEW.handler, 'One of ' || array_to_string(cronstream.handlers(), ', ') || '.');
    END IF;
    checked := cronstream.check_payload(NEW.handler, NEW.payload);
    -- one look at all that is nearly always left at its default; the reasons are found only when it fails
    IF NOT (NEW.misfire_policy IN ('FIRE_NOW', 'SKIP', 'CATCH_UP')
            AND NEW.overlap_policy IN ('allow', 'queue', 'skip')
            AND NEW.dst_gap IN ('auto', 'shift', 'skip')
            AND NEW.dst_overlap IN ('auto', 'first', 'second', 'both')
            AND NEW.jitter IN ('full', 'equal', 'none')
            AND NEW.misfire_grace BETWEEN interval '0' AND interval '1 day'
            AND NEW.catch_up_limit BETWEEN 1 AND 10000
            AND NEW.spread_seconds BETWEEN 0 AND 86400
            AND NEW.max_attempts BETWEEN 1 AND 1000
            AND NEW.backoff_seconds BETWEEN 0 AND 86400
            AND NEW.backoff_factor BETWEEN 1 AND 100
            AND NEW.max_backoff BETWEEN interval '0' AND interval '24 hours'
            AND NEW.timeout_seconds > 0 AND NEW.timeout_seconds <= 86400) THEN
        PERFORM cronstream.explain_bounds(NEW);
    END IF;
    NEW.updated_at := now();
    NEW.revision := nextval('cronstream.revisions');
    RETURN NEW;
END $$;

-- The schedule's columns of a row before its edit; instants and spans as integer microseconds.
CREATE FUNCTION cronstream.schedule_of(d cronstream.job_definitions) RETURNS jsonb
    LANGUAGE sql IMMUTABLE
    RETURN jsonb_build_object(
        'tenant', d.tenant, 'name', d.name,
        'cron', d.cron, 'every_us', cronstream.us(d.every), 'run_at_us', cronstream.us(d.run_at),
        'anchor_us', cronstream.us(d.anchor), 'timezone', d.timezone,
        'starts_at_us', cronstream.us(d.starts_at), 'ends_at_us', cronstream.us(d.ends_at), 'enabled', d.enabled,
        'misfire_policy', d.misfire_policy, 'misfire_grace_us', cronstream.us(d.misfire_grace),
        'catch_up_limit', d.catch_up_limit, 'dst_gap', d.dst_gap, 'dst_overlap', d.dst_overlap,
        'spread_seconds', d.spread_seconds);

-- AFTER each statement: one change an edited row. Touches nothing but job_changes, so
-- that a user's open transaction holds up nobody else.
CREATE FUNCTION cronstream.record_changes() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        INSERT INTO cronstream.job_changes (job_id, revision, kind)
        SELECT n.job_id, n.revision, 'insert' FROM new_rows n;
    ELSIF TG_OP = 'UPDATE' THEN
        INSERT INTO cronstream.job_changes (job_id, revision, kind, previous)
        SELECT n.job_id, n.revision, 'update', cronstream.schedule_of(ROW(o.*)::cronstream.job_definitions)
        FROM new_rows n JOIN old_rows o USING (job_id)
        WHERE n.revision <> o.revision;
    ELSE
        INSERT INTO cronstream.job_changes (job_id, revision, kind, previous)
        SELECT o.job_id, nextval('cronstream.revisions'), 'delete', cronstream.schedule_of(ROW(o.*)::cronstream.job_definitions)
        FROM old_rows o;
    END IF;
    RETURN NULL;
END $$;

CREATE FUNCTION cronstream.refuse_truncate() RETURNS trigger
    LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION USING ERRCODE = 'object_not_in_prerequisite_state',
        MESSAGE = 'job_definitions cannot be truncated: nobody would hear of the deleted jobs',
        HINT = 'DELETE FROM cronstream.job_definitions;',
        SCHEMA = 'cronstream', TABLE = 'job_definitions';
END $$;

CREATE TRIGGER aa_check_and_stamp BEFORE INSERT OR UPDATE ON cronstream.job_definitions
    FOR EACH ROW EXECUTE FUNCTION cronstream.check_and_stamp();
CREATE TRIGGER record_insert AFTER INSERT ON cronstream.job_definitions
    REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION cronstream.record_changes();
CREATE TRIGGER record_update AFTER UPDATE ON cronstream.job_definitions
    REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION cronstream.record_changes();
CREATE TRIGGER record_delete AFTER DELETE ON cronstream.job_definitions
    REFERENCING OLD TABLE AS old_rows FOR EACH STATEMENT EXECUTE FUNCTION cronstream.record_changes();
CREATE TRIGGER refuse_truncate BEFORE TRUNCATE ON cronstream.job_definitions
    FOR EACH STATEMENT EXECUTE FUNCTION cronstream.refuse_truncate();

-- What a role needs that defines jobs and nothing else. The trigger functions run as
-- the owner, so no right on job_changes is needed; job_id, revision and the times of
-- creation and edit cannot be written.
CREATE FUNCTION cronstream.grant_definitions(role_name name) RETURNS void
    LANGUAGE plpgsql AS $$
DECLARE
    columns text;
BEGIN
    SELECT string_agg(quote_ident(attname), ', ' ORDER BY attnum) INTO columns FROM pg_attribute
    WHERE attrelid = 'cronstream.job_definitions'::regclass AND attnum > 0 AND NOT attisdropped
      AND attname NOT IN ('job_id', 'revision', 'created_at', 'updated_at');
    EXECUTE format('GRANT USAGE ON SCHEMA cronstream TO %I', role_name);
    EXECUTE format('GRANT SELECT ON cronstream.zones TO %I', role_name);
    EXECUTE format('GRANT SELECT, DELETE, INSERT (%s), UPDATE (%1$s) ON cronstream.job_definitions TO %2$I', columns, role_name);
END $$;
