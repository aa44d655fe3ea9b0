-- What cronstream doctor asks. Everything is bounded: of a large table it reads a sample of pages.

-- name: server_settings
-- The server's version, and the settings that the product needs.
SELECT current_setting('server_version') AS version, current_setting('server_version_num')::int AS version_number,
       current_setting('wal_level') AS wal_level, current_setting('track_commit_timestamp') AS track_commit_timestamp,
       current_setting('max_slot_wal_keep_size') AS max_slot_wal_keep_size

-- name: clock
-- The database's clock in microseconds; needs no schema.
SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint

-- name: zone_keys
-- The zones that definitions may name.
SELECT cronstream.zone_names()

-- name: sample_percent
-- How much of the definitions is read: all of them up to so many pages.
SELECT least(100, 100.0 * %(pages)s * current_setting('block_size')::int
                  / greatest(pg_relation_size('cronstream.job_definitions'), 1))::float8

-- name: zones_in_use
-- The zones of the definitions, or of a sample of them.
SELECT DISTINCT timezone FROM cronstream.job_definitions TABLESAMPLE SYSTEM (%(percent)s) ORDER BY timezone

-- name: use_zone
-- Later statements of this session count in the zone. AT TIME ZONE would read CET and EST as abbreviations.
SELECT set_config('TimeZone', %(zone)s, false)

-- name: offsets
-- Seconds east of UTC in the session's zone, at each of the seconds since the epoch.
SELECT array_agg(extract(timezone FROM to_timestamp(second))::int ORDER BY place)
FROM unnest(%(seconds)s::bigint[]) WITH ORDINALITY AS asked (second, place)

-- name: sample_definitions
-- Definitions as the coordinator reads them, or a sample of them; one more than are judged.
SELECT r.*, cronstream.us(coalesce(s.anchor, now())) AS stored_anchor_us
FROM (SELECT job_id FROM cronstream.job_definitions TABLESAMPLE SYSTEM (%(percent)s) LIMIT %(most)s) AS picked
JOIN cronstream.job_rules r USING (job_id) LEFT JOIN cronstream.schedules s USING (job_id)
