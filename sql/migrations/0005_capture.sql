-- What capture reads: inserts into job_changes, and a heartbeat that it writes itself.

CREATE TABLE cronstream.capture_heartbeat (
    id       smallint PRIMARY KEY,
    beat_at  timestamptz NOT NULL
) WITH (fillfactor = 50);

-- Deletes stay out: the coordinator's own clearing up of job_changes is no news.
CREATE PUBLICATION cronstream_capture FOR TABLE cronstream.job_changes, cronstream.capture_heartbeat
    WITH (publish = 'insert, update');
