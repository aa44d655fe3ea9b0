-- What the leader reads of definitions, and what lets a new etcd take over from a lost one.

-- A definition as the coordinator plans it: instants and spans in integer microseconds.
CREATE VIEW cronstream.job_rules AS
SELECT d.job_id, d.revision, d.tenant, d.name,
       d.cron, cronstream.us(d.every) AS every_us, cronstream.us(d.run_at) AS run_at_us,
       cronstream.us(d.anchor) AS anchor_us, d.timezone,
       cronstream.us(d.starts_at) AS starts_at_us, cronstream.us(d.ends_at) AS ends_at_us, d.enabled,
       d.misfire_policy, cronstream.us(d.misfire_grace) AS misfire_grace_us, d.catch_up_limit,
       d.dst_gap, d.dst_overlap, d.spread_seconds,
       d.handler, d.payload::text AS payload, d.overlap_policy, d.max_attempts, d.backoff_seconds,
       d.backoff_factor, cronstream.us(d.max_backoff) AS max_backoff_us, d.jitter, d.timeout_seconds
FROM cronstream.job_definitions d;

-- An instant of integer microseconds; NULL for NULL.
CREATE FUNCTION cronstream.instant(us bigint) RETURNS timestamptz
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    RETURN timestamptz 'epoch' + us * interval '1 microsecond';

-- A wiped or restored etcd counts its revisions anew. Adopting it sets base to the newest
-- token, so that token = base + revision goes on growing.
ALTER TABLE cronstream.coordinator_epoch ADD COLUMN base bigint NOT NULL DEFAULT 0;
