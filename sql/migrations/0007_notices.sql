-- What is valid and may still surprise: a NOTICE, after the statement has succeeded. Of cron the same
-- four things as in cronstream/schedule/notices.py: two restricted day fields, a step as long as its
-- field, one that does not divide it, a time that the next change of the zone's clock skips. Of run_at and ends_at that
-- they are past.

-- A zone's clock jumps: the instant in seconds since the epoch, the offsets before and after.
CREATE TYPE cronstream.clock_jump AS (at bigint, was int, becomes int);

-- The next jump forward within 366 days; NULL when there is none, or when this server does not know
-- the zone. Looks every 20 days, then halves. By the session's zone, because AT TIME ZONE would read
-- CET and EST as abbreviations.
CREATE FUNCTION cronstream.next_gap(zone text, after timestamptz) RETURNS cronstream.clock_jump
    LANGUAGE plpgsql STABLE AS $$
DECLARE
    own    CONSTANT text := current_setting('TimeZone');
    low    bigint := floor(extract(epoch FROM after));
    last   CONSTANT bigint := low + 366 * 86400;
    high   bigint;
    middle bigint;
    was    int;
    offset_there int;
    found  cronstream.clock_jump;
BEGIN
    PERFORM set_config('TimeZone', zone, true);
    was := extract(timezone FROM to_timestamp(low));
    WHILE low < last LOOP
        high := least(low + 20 * 86400, last);
        offset_there := extract(timezone FROM to_timestamp(high));
        IF offset_there > was THEN
            WHILE high - low > 1 LOOP
                middle := (low + high) / 2;
                offset_there := extract(timezone FROM to_timestamp(middle));
                IF offset_there > was THEN
                    high := middle;
                ELSE
                    low := middle;
                    was := offset_there;
                END IF;
            END LOOP;
            found := (high, was, extract(timezone FROM to_timestamp(high))::int);
            EXIT;
        END IF;
        low := high;
        was := offset_there;
    END LOOP;
    PERFORM set_config('TimeZone', own, true);
    RETURN found;
EXCEPTION WHEN invalid_parameter_value THEN
    RETURN NULL;
END $$;

-- A wall time, in seconds since 1970-01-01 00:00, as 02:30 or 02:30:15.
CREATE FUNCTION cronstream.clock_text(wall bigint) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN to_char(timestamp 'epoch' + wall * interval '1 second', CASE WHEN wall % 60 = 0 THEN 'HH24:MI' ELSE 'HH24:MI:SS' END);

-- The sentence about a time of the six fields (upper case) that the zone's next jump after `seen` skips, or NULL.
CREATE FUNCTION cronstream.gap_notice(
    fields text[], tenant text, name text, timezone text, dst_gap text, seen timestamptz) RETURNS text
    LANGUAGE plpgsql STABLE AS $$
DECLARE
    key     bytea;
    hours   bigint;
    gap     cronstream.clock_jump;
    low     bigint;  -- wall seconds that are skipped: from low, before high
    high    bigint;
    minutes bigint;
    seconds bigint;
    second  int := 0;
    days    cronstream.cron_days;
    today   date;
    wall    bigint;
BEGIN
    IF timezone = 'UTC' OR fields[3] = '*' THEN
        RETURN NULL;
    END IF;
    key := cronstream.hash_key(tenant, name);
    hours := cronstream.cron_mask(3, fields[3], key);
    IF hours = (1 << 24) - 1 THEN
        RETURN NULL;
    END IF;
    gap := cronstream.next_gap(timezone, seen);
    low := gap.at + gap.was;
    high := gap.at + gap.becomes;
    IF low IS NULL THEN
        RETURN NULL;
    END IF;
    minutes := cronstream.cron_mask(2, fields[2], key);
    seconds := cronstream.cron_mask(1, fields[1], key);
    WHILE seconds >> second & 1 = 0 LOOP
        second := second + 1;
    END LOOP;
    FOR minute IN low / 60..(high - 1) / 60 LOOP
        CONTINUE WHEN hours >> minute / 60 % 24 & 1 = 0 OR minutes >> minute % 60 & 1 = 0;
        days := coalesce(days, cronstream.cron_days(fields[4], fields[5], fields[6], key));
        today := date '1970-01-01' + minute / 1440;
        IF days.months >> extract(month FROM today)::int & 1 = 1 AND cronstream.cron_day_matches(
            days, extract(day FROM today)::int,
            extract(day FROM date_trunc('month', today::timestamp) + interval '1 month -1 day')::int,
            extract(dow FROM today)::int) THEN
            wall := minute * 60::bigint + second;
            EXIT;
        END IF;
    END LOOP;
    IF wall IS NULL THEN
        RETURN NULL;
    END IF;
    RETURN format('%s does not exist on %s in %s, where clocks go from %s to %s: the job ',
            cronstream.clock_text(wall), to_char(today, 'YYYY-MM-DD'), timezone, cronstream.clock_text(low), cronstream.clock_text(high))
        || CASE WHEN dst_gap = 'shift' OR dst_gap = 'auto' AND fields[2] !~ '^\*' AND fields[3] !~ '^\*'
                THEN format('fires at %s instead, %sZ (dst_gap)', cronstream.clock_text(high),
                            to_char(timestamp 'epoch' + gap.at * interval '1 second', 'YYYY-MM-DD"T"HH24:MI:SS'))
                ELSE 'does not fire for it (dst_gap)' END;
END $$;

-- The sentences about a job at an instant.
CREATE FUNCTION cronstream.cron_notices(
    cron text, tenant text, name text, timezone text, dst_gap text, seen timestamptz) RETURNS text[]
    LANGUAGE plpgsql STABLE AS $$
DECLARE
    names  CONSTANT text[] := ARRAY['second', 'minute', 'hour', 'day of month', 'month', 'day of week'];
    sizes  CONSTANT int[] := ARRAY[60, 60, 24, 31, 12, 7];
    shown  CONSTANT text[] := cronstream.cron_fields(cron);
    fields CONSTANT text[] := string_to_array(upper(array_to_string(shown, ' ') COLLATE "C"), ' ');
    item   text;
    step   int;
    found  text[] := '{}';
BEGIN
    FOR i IN 1..6 LOOP
        CONTINUE WHEN strpos(fields[i], '*/') = 0;
        FOREACH item IN ARRAY string_to_array(fields[i], ',') LOOP
            CONTINUE WHEN item !~ '^\*/';
            step := substr(item, 3)::int;
            IF step = sizes[i] THEN
                found := found || format('%s: "%s" matches %s alone, like "%3$s"', names[i], item, CASE WHEN i IN (4, 5) THEN 1 ELSE 0 END);
            -- months differ in length, and no step divides a week: of days nobody expects it
            ELSIF sizes[i] % step <> 0 AND i NOT IN (4, 6) THEN
                found := found || format('%s: "%s" goes from %s to %s, a step of %s: %s does not divide %s', names[i], item,
                    sizes[i] - sizes[i] % step + CASE WHEN i = 5 THEN 1 ELSE 0 END, CASE WHEN i = 5 THEN 1 ELSE 0 END,
                    sizes[i] % step, step, sizes[i]);
            END IF;
        END LOOP;
    END LOOP;
    IF fields[4] !~ '^[*?]' AND fields[6] !~ '^[*?]' THEN
        found := found || format('day of month "%s" and day of week "%s" are both restricted: the job fires on days that match either',
                                 regexp_replace(shown[4], '^(.{40}).+', '\1…'), regexp_replace(shown[6], '^(.{40}).+', '\1…'));
    END IF;
    RETURN array_remove(found || cronstream.gap_notice(fields, tenant, name, timezone, dst_gap, seen), NULL);
END $$;

-- Raises a NOTICE for each.
CREATE FUNCTION cronstream.tell(cron text, tenant text, name text, timezone text, dst_gap text) RETURNS void
    LANGUAGE plpgsql AS $$
DECLARE
    notice text;
BEGIN
    FOREACH notice IN ARRAY cronstream.cron_notices(cron, tenant, name, timezone, dst_gap, now()) LOOP
        RAISE NOTICE USING MESSAGE = format('job %L: %s', name, notice),
            SCHEMA = 'cronstream', TABLE = 'job_definitions', COLUMN = 'cron';
    END LOOP;
END $$;

-- Raises a NOTICE of a schedule that is over, by its single time or its ends_at: the leader plans strictly after the commit.
-- A single time that is past when its job is resumed passed in the pause, or ran before it: history has it as skipped, or
-- as a run. Of what lies after ends_at history has nothing.
CREATE FUNCTION cronstream.tell_past(tenant text, name text, run_at timestamptz, ends_at timestamptz, in_pause boolean DEFAULT false) RETURNS void
    LANGUAGE plpgsql AS $$
BEGIN
    RAISE NOTICE USING
        MESSAGE = format('job %L: %s %s is past: it does not run%s', name, CASE WHEN run_at IS NULL THEN 'ends_at' ELSE 'run_at' END,
            coalesce(run_at, ends_at), CASE WHEN in_pause OR run_at IS NULL THEN ' any more' ELSE ', and history says so' END),
        HINT = format('SELECT cronstream.run_now(%L, %L) runs it now.', tenant, name),
        SCHEMA = 'cronstream', TABLE = 'job_definitions', COLUMN = CASE WHEN run_at IS NULL THEN 'ends_at' ELSE 'run_at' END;
END $$;

-- AFTER each statement: the rows whose schedule is new, but a hundred at the most. A fleet that moves
-- in is no conversation, and pays nothing here; nor does a client that hears no notices.
-- No nested loops: they promise the first hundred soon, and go through all pairs where there is none.
CREATE FUNCTION cronstream.tell_surprises() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on
    SET enable_nestloop = off AS $$
BEGIN
    IF current_setting('client_min_messages') IN ('warning', 'error') THEN
        RETURN NULL;
    ELSIF TG_OP = 'INSERT' THEN
        PERFORM cronstream.tell(s.cron, s.tenant, s.name, s.timezone, s.dst_gap)
        FROM (SELECT * FROM new_rows n WHERE n.cron IS NOT NULL LIMIT 100) AS s;
        PERFORM cronstream.tell_past(s.tenant, s.name, s.run_at, s.ends_at)
        FROM (SELECT * FROM new_rows n WHERE coalesce(n.run_at, n.ends_at) IS NOT NULL LIMIT 100) AS s
        WHERE s.enabled AND coalesce(s.run_at + cronstream.spread_offset(s.spread_seconds, s.tenant, s.name), s.ends_at) < clock_timestamp();
    ELSE
        PERFORM cronstream.tell(s.cron, s.tenant, s.name, s.timezone, s.dst_gap)
        FROM (SELECT n.* FROM new_rows n JOIN old_rows o USING (job_id)
              WHERE n.cron IS NOT NULL AND n.revision <> o.revision
                AND (n.cron, n.timezone, n.dst_gap) IS DISTINCT FROM (o.cron, o.timezone, o.dst_gap) LIMIT 100) AS s;
        PERFORM cronstream.tell_past(s.tenant, s.name, s.run_at, s.ends_at, s.in_pause)
        FROM (SELECT n.*, (n.run_at, n.spread_seconds) IS NOT DISTINCT FROM (o.run_at, o.spread_seconds) AS in_pause
              FROM new_rows n JOIN old_rows o USING (job_id)
              WHERE (n.run_at IS NOT NULL
                      AND (n.run_at, n.spread_seconds, n.enabled) IS DISTINCT FROM (o.run_at, o.spread_seconds, o.enabled))
                 OR (n.run_at IS NULL AND n.ends_at IS NOT NULL
                      AND (n.run_at, n.ends_at, n.enabled) IS DISTINCT FROM (o.run_at, o.ends_at, o.enabled)) LIMIT 100) AS s
        WHERE s.enabled AND coalesce(s.run_at + cronstream.spread_offset(s.spread_seconds, s.tenant, s.name), s.ends_at) < clock_timestamp();
    END IF;
    RETURN NULL;
END $$;

CREATE TRIGGER tell_insert AFTER INSERT ON cronstream.job_definitions
    REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION cronstream.tell_surprises();
CREATE TRIGGER tell_update AFTER UPDATE ON cronstream.job_definitions
    REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION cronstream.tell_surprises();
