-- What the leader reads of definitions and writes beside them: the hot row of each job, and its epoch.

CREATE TABLE cronstream.schedules (
    job_id       bigint PRIMARY KEY,      -- no foreign key: an edit never waits for an advance
    next_run_at  timestamptz,             -- NULL: nothing is due any more
    version      bigint NOT NULL,         -- every advance names the version it expects
    revision     bigint NOT NULL,         -- of the definition it was planned from
    anchor       timestamptz,             -- of an interval: its own, or the creating commit
    tzdata       text                     -- the time zone data it was planned with
) WITH (fillfactor = 85, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000,
        autovacuum_analyze_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 1);
-- The order in which slices are loaded: a herd of one instant is read once, not once a slice.
CREATE INDEX schedules_next_run_at ON cronstream.schedules (next_run_at, job_id) WHERE next_run_at IS NOT NULL;

-- Whose database this is: topics, keys of etcd and the slot hang off the name, so no other installation may work on it.
CREATE TABLE cronstream.installation (
    single  boolean PRIMARY KEY DEFAULT true CHECK (single),
    name    text NOT NULL
);
GRANT SELECT ON cronstream.installation TO PUBLIC;

-- The newest fencing token seen. Every advance locks this row FOR SHARE and checks it.
-- A wiped or restored etcd counts its revisions anew. Adopting it sets base to the newest token, so that
-- token = base + revision goes on growing.
-- A node with older time zone data than a leader ever had does not lead; one with newer data plans anew what was
-- planned with other data, then says so here.
CREATE TABLE cronstream.coordinator_epoch (
    single          boolean PRIMARY KEY DEFAULT true CHECK (single),
    token           bigint NOT NULL DEFAULT 0,
    node            text,
    raised_at       timestamptz,
    base            bigint NOT NULL DEFAULT 0,
    tzdata          text,            -- the newest that a leader had
    tzdata_planned  text,            -- the newest with which every plan was made
    -- who etcd is: a key that the first leader left there. One without it was wiped, whatever its revisions say
    etcd_identity   text
);
INSERT INTO cronstream.coordinator_epoch DEFAULT VALUES;

-- Up to where everything published on triggers is advanced. A table of its own, so that
-- advancing statements do not queue on the epoch's row.
CREATE TABLE cronstream.trigger_offsets (
    partition    integer PRIMARY KEY,
    next_offset  bigint NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);

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
