-- What the leader writes: the hot row beside each definition, and its epoch.

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

-- The newest fencing token seen. Every advance locks this row FOR SHARE and checks it.
CREATE TABLE cronstream.coordinator_epoch (
    single     boolean PRIMARY KEY DEFAULT true CHECK (single),
    token      bigint NOT NULL DEFAULT 0,
    node       text,
    raised_at  timestamptz
);
INSERT INTO cronstream.coordinator_epoch DEFAULT VALUES;

-- Up to where everything published on triggers is advanced. A table of its own, so that
-- advancing statements do not queue on the epoch's row.
CREATE TABLE cronstream.trigger_offsets (
    partition    integer PRIMARY KEY,
    next_offset  bigint NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);
