-- Job definitions: rows that users own; and job_changes: one row an edit, which capture is told of (0011_capture.sql).

CREATE SEQUENCE cronstream.revisions;

CREATE TABLE cronstream.job_definitions (
    -- 43 bits: beside it a run's key has room for its time (streams/keys.py)
    job_id           bigint GENERATED ALWAYS AS IDENTITY (MAXVALUE 8796093022207) PRIMARY KEY,
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
    -- Only the index can tell without a race, and only its name says more than Postgres would.
    CONSTRAINT one_job_per_tenant_and_name_or_call_cronstream_upsert UNIQUE (tenant, name)
);

CREATE TABLE cronstream.job_changes (
    change_id   bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    job_id      bigint NOT NULL,
    revision    bigint NOT NULL,
    kind        text NOT NULL CHECK (kind IN ('insert', 'update', 'delete')),
    previous    jsonb CHECK ((previous IS NULL) = (kind = 'insert')) CHECK (jsonb_typeof(previous) = 'object'),
    changed_at  timestamptz NOT NULL DEFAULT clock_timestamp()
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000,
        autovacuum_vacuum_insert_scale_factor = 0, autovacuum_vacuum_insert_threshold = 10000);
COMMENT ON TABLE cronstream.job_changes IS
    'Open edits: the definitions'' trigger inserts, the coordinator deletes when planned. Normally empty.';
CREATE INDEX job_changes_job_id ON cronstream.job_changes (job_id);

-- Microseconds, exact: since the Unix epoch, or of a span (a day is 24 hours). A row that was written around the
-- triggers can hold infinity or a span of ages. Read as a number it is bounded to 2^62, so that it makes one job invalid
-- and not every query that meets it. Not STRICT, and of immutable parts alone: so Postgres puts the body in place of a
-- call, which else costs six times as much.
CREATE FUNCTION cronstream.us(instant timestamptz) RETURNS bigint
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN CASE WHEN instant > '-infinity'
                THEN (extract(epoch FROM least(instant, '148108-07-06 14:00:27.387904+00') - timestamptz '1970-01-01 00:00:00+00') * 1000000)::bigint
                WHEN instant = '-infinity' THEN -4611686018427387904 END;
CREATE FUNCTION cronstream.us(span interval) RETURNS bigint
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN CASE WHEN span IS NOT NULL
                THEN least(greatest(extract(epoch FROM span) * 1000000, -4611686018427387904), 4611686018427387904)::bigint END;

-- The schedule's columns of a row before its edit; instants and spans as integer microseconds. A function whose body
-- Postgres has parsed depends on the row's type as a whole: with one that takes a definition, nobody could add a column
-- with a default to the table. As text it depends on nothing. STABLE as its parts are, so that Postgres puts the body in
-- place of a call, which costs twice as much.
CREATE FUNCTION cronstream.schedule_of(d cronstream.job_definitions) RETURNS jsonb
    LANGUAGE sql STABLE AS $$
    SELECT jsonb_build_object(
        'tenant', d.tenant, 'name', d.name,
        'cron', d.cron, 'every_us', cronstream.us(d.every), 'run_at_us', cronstream.us(d.run_at),
        'anchor_us', cronstream.us(d.anchor), 'timezone', d.timezone,
        'starts_at_us', cronstream.us(d.starts_at), 'ends_at_us', cronstream.us(d.ends_at), 'enabled', d.enabled,
        'misfire_policy', d.misfire_policy, 'misfire_grace_us', cronstream.us(d.misfire_grace),
        'catch_up_limit', d.catch_up_limit, 'dst_gap', d.dst_gap, 'dst_overlap', d.dst_overlap,
        'spread_seconds', d.spread_seconds)
$$;

-- AFTER each statement: one change an edited row. Touches nothing but job_changes, so
-- that a user's open transaction holds up nobody else.
-- No nested loops: a session keeps the plan that it made for one row, and would go through all pairs of a hundred thousand.
CREATE FUNCTION cronstream.record_changes() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on
    SET enable_nestloop = off AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        INSERT INTO cronstream.job_changes (job_id, revision, kind)
        SELECT n.job_id, n.revision, 'insert' FROM new_rows n;
        IF FOUND THEN
            -- check_and_stamp() lets no session choose an id that it was given before
            PERFORM set_config('cronstream.last_job_id', currval('cronstream.job_definitions_job_id_seq')::text, false);
        END IF;
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
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on AS $$
BEGIN
    RAISE EXCEPTION USING ERRCODE = 'object_not_in_prerequisite_state',
        MESSAGE = 'job_definitions cannot be truncated: nobody would hear of the deleted jobs',
        HINT = 'DELETE FROM cronstream.job_definitions;',
        SCHEMA = 'cronstream', TABLE = 'job_definitions';
END $$;

-- A session of session_replication_role = replica fires no other trigger: its edits would be unchecked and unheard of.
-- Subscriptions write as they did elsewhere: they fire no trigger of statements, and their first copy is no client's.
CREATE FUNCTION cronstream.refuse_replica() RETURNS trigger
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on AS $$
BEGIN
    IF current_setting('session_replication_role') = 'replica'
       AND EXISTS (SELECT FROM pg_stat_activity WHERE pid = pg_backend_pid() AND backend_type = 'client backend') THEN
        RAISE EXCEPTION USING ERRCODE = 'object_not_in_prerequisite_state',
            MESSAGE = 'job_definitions cannot be edited under session_replication_role = replica: nobody would hear of it',
            HINT = 'SET session_replication_role = origin;',
            SCHEMA = 'cronstream', TABLE = 'job_definitions';
    END IF;
    RETURN NULL;
END $$;

CREATE TRIGGER record_insert AFTER INSERT ON cronstream.job_definitions
    REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION cronstream.record_changes();
CREATE TRIGGER record_update AFTER UPDATE ON cronstream.job_definitions
    REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION cronstream.record_changes();
CREATE TRIGGER record_delete AFTER DELETE ON cronstream.job_definitions
    REFERENCING OLD TABLE AS old_rows FOR EACH STATEMENT EXECUTE FUNCTION cronstream.record_changes();
CREATE TRIGGER refuse_truncate BEFORE TRUNCATE ON cronstream.job_definitions
    FOR EACH STATEMENT EXECUTE FUNCTION cronstream.refuse_truncate();
CREATE TRIGGER refuse_replica BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON cronstream.job_definitions
    FOR EACH STATEMENT EXECUTE FUNCTION cronstream.refuse_replica();
ALTER TABLE cronstream.job_definitions ENABLE REPLICA TRIGGER refuse_replica;
