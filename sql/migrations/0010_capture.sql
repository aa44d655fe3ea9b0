-- What capture reads: inserts into job_changes and open_requests, and a heartbeat that it writes itself.

CREATE TABLE cronstream.capture_heartbeat (
    id       smallint PRIMARY KEY,
    beat_at  timestamptz NOT NULL
) WITH (fillfactor = 50);

-- Deletes stay out: the coordinator's own clearing up of job_changes is no news.
CREATE PUBLICATION cronstream_capture FOR TABLE cronstream.job_changes, cronstream.open_requests,
    cronstream.capture_heartbeat
    WITH (publish = 'insert, update');

-- What the capture's login role needs besides LOGIN and REPLICATION, which only a superuser gives.
CREATE FUNCTION cronstream.grant_capture(role_name name) RETURNS void
    LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format('GRANT CONNECT ON DATABASE %I TO %I', current_database(), role_name);
    EXECUTE format('GRANT USAGE ON SCHEMA cronstream TO %I', role_name);
    EXECUTE format('GRANT SELECT ON cronstream.job_changes, cronstream.open_requests, cronstream.capture_heartbeat TO %I', role_name);
    EXECUTE format('GRANT INSERT, UPDATE ON cronstream.capture_heartbeat TO %I', role_name);
END $$;

-- A role of this name gets its rights at once; any other by SELECT cronstream.grant_capture('...').
DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'cronstream_capture') THEN
        PERFORM cronstream.grant_capture('cronstream_capture');
    END IF;
END $$;
