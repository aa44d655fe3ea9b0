-- A function whose body Postgres has parsed depends on the columns it reads, and on the row's type as a whole: with
-- one that takes a definition, nobody could add a column with a default to the table. As text it depends on nothing.

CREATE OR REPLACE FUNCTION cronstream.schedule_of(d cronstream.job_definitions) RETURNS jsonb
    LANGUAGE sql IMMUTABLE AS $$
    SELECT jsonb_build_object(
        'tenant', d.tenant, 'name', d.name,
        'cron', d.cron, 'every_us', cronstream.us(d.every), 'run_at_us', cronstream.us(d.run_at),
        'anchor_us', cronstream.us(d.anchor), 'timezone', d.timezone,
        'starts_at_us', cronstream.us(d.starts_at), 'ends_at_us', cronstream.us(d.ends_at), 'enabled', d.enabled,
        'misfire_policy', d.misfire_policy, 'misfire_grace_us', cronstream.us(d.misfire_grace),
        'catch_up_limit', d.catch_up_limit, 'dst_gap', d.dst_gap, 'dst_overlap', d.dst_overlap,
        'spread_seconds', d.spread_seconds)
$$;
