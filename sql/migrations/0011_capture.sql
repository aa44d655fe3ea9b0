-- What capture reads: word of the edits, inserts into open_requests, and a heartbeat that it writes itself.

-- One row for a statement's edits, or for a thousand of them: a row each would have to be decoded, sent and read one after
-- the other, and a hundred thousand edits took half a minute. What the leader goes by are the rows of job_changes; this
-- only says which ones there are, and is forgotten after a minute. Not a message in the log: anybody could send those.
CREATE TABLE cronstream.announcements (
    number        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    change_ids    bigint[] NOT NULL,
    job_ids       bigint[] NOT NULL,
    announced_at  timestamptz NOT NULL DEFAULT clock_timestamp()
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

CREATE FUNCTION cronstream.announce_changes() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on AS $$
BEGIN
    INSERT INTO cronstream.announcements (change_ids, job_ids)
    SELECT array_agg(change_id), array_agg(job_id)
    FROM (SELECT change_id, job_id, (row_number() OVER (ORDER BY change_id) - 1) / 1000 AS part FROM new_rows) numbered
    GROUP BY part ORDER BY part;
    RETURN NULL;
END $$;
CREATE TRIGGER announce_changes AFTER INSERT ON cronstream.job_changes
    REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION cronstream.announce_changes();

CREATE TABLE cronstream.capture_heartbeat (
    id       smallint PRIMARY KEY,
    beat_at  timestamptz NOT NULL
) WITH (fillfactor = 50);

-- Deletes stay out: the coordinator's own clearing up is no news.
CREATE PUBLICATION cronstream_capture FOR TABLE cronstream.announcements, cronstream.open_requests,
    cronstream.capture_heartbeat
    WITH (publish = 'insert, update');

-- What the capture's login role needs besides LOGIN and REPLICATION, which only a superuser gives.
CREATE FUNCTION cronstream.grant_capture(role_name name) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on AS $$
BEGIN
    EXECUTE format('GRANT CONNECT ON DATABASE %I TO %I', current_database(), role_name);
    EXECUTE format('GRANT USAGE ON SCHEMA cronstream TO %I', role_name);
    EXECUTE format('GRANT SELECT ON cronstream.announcements, cronstream.open_requests, cronstream.capture_heartbeat TO %I', role_name);
    EXECUTE format('GRANT INSERT, UPDATE ON cronstream.capture_heartbeat TO %I', role_name);
END $$;

-- A role of this name gets its rights at once; any other by SELECT cronstream.grant_capture('...').
DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'cronstream_capture') THEN
        PERFORM cronstream.grant_capture('cronstream_capture');
    END IF;
END $$;
