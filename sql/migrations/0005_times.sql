-- The times of a definition as far as SQL needs them: whether there is one between two bounds, and how many.
-- cronstream/schedule tells them all.

-- Can a valid expression fire from one instant to another, both included? False is sure, true is not:
-- more than 400 days are not walked, and a zone other than UTC stands for all of them.
CREATE FUNCTION cronstream.cron_within(
    cron text, tenant text, name text, timezone text, earliest timestamptz, latest timestamptz) RETURNS boolean
    LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
DECLARE
    -- wall seconds since 1970; zones lie from 12 hours behind to 14 ahead, and a gap moves a time by two at most
    low     CONSTANT bigint := ceil(extract(epoch FROM earliest)) - CASE timezone WHEN 'UTC' THEN 0 ELSE 15 * 3600 END;
    high    CONSTANT bigint := floor(extract(epoch FROM latest)) + CASE timezone WHEN 'UTC' THEN 0 ELSE 17 * 3600 END;
    fields  text[];
    key     bytea;
    days    cronstream.cron_days;
    seconds bigint;
    minutes bigint;
    hours   bigint;
    today   date;
    second  bigint;  -- of the minute: the first one, and how many
    many    bigint;
BEGIN
    IF high - low > 400 * 86400 THEN
        RETURN true;
    END IF;
    fields := string_to_array(upper(array_to_string(cronstream.cron_fields(cron), ' ') COLLATE "C"), ' ');
    key := cronstream.hash_key(tenant, name);
    days := cronstream.cron_days(fields[4], fields[5], fields[6], key);
    seconds := cronstream.cron_mask(1, fields[1], key);
    minutes := cronstream.cron_mask(2, fields[2], key);
    hours := cronstream.cron_mask(3, fields[3], key);
    FOR day IN floor(low / 86400.0)::int..floor(high / 86400.0)::int LOOP
        today := date '1970-01-01' + day;
        CONTINUE WHEN days.months >> extract(month FROM today)::int & 1 = 0 OR NOT cronstream.cron_day_matches(
            days, extract(day FROM today)::int,
            extract(day FROM date_trunc('month', today::timestamp) + interval '1 month -1 day')::int,
            extract(dow FROM today)::int);
        FOR minute IN 0..1439 LOOP
            CONTINUE WHEN hours >> minute / 60 & 1 = 0 OR minutes >> minute % 60 & 1 = 0;
            second := greatest(low - day * 86400::bigint - minute * 60, 0);
            many := least(high - day * 86400::bigint - minute * 60, 59) - second + 1;
            CONTINUE WHEN second > 59 OR many < 1;
            IF seconds >> second::int & ((1::bigint << many::int) - 1) <> 0 THEN
                RETURN true;
            END IF;
        END LOOP;
    END LOOP;
    RETURN false;
END $$;

-- How many of a day's times, whose seconds, minutes and hours are given as bits, come before a second of it.
CREATE FUNCTION cronstream.cron_before(seconds bigint, minutes bigint, hours bigint, second bigint) RETURNS bigint
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN bit_count((hours & (1::bigint << (second / 3600)::int) - 1)::bit(64)) * bit_count(minutes::bit(64)) * bit_count(seconds::bit(64))
        + (hours >> (second / 3600)::int & 1) * bit_count((minutes & (1::bigint << (second / 60 % 60)::int) - 1)::bit(64)) * bit_count(seconds::bit(64))
        + (hours >> (second / 3600)::int & 1) * (minutes >> (second / 60 % 60)::int & 1) * bit_count((seconds & (1::bigint << (second % 60)::int) - 1)::bit(64));

-- How many times of a valid expression lie between two wall seconds since 1970, both included. Counted to a little more than
-- `most`, and over 150,000 days: the calendar comes again after 146,097.
CREATE FUNCTION cronstream.cron_count(cron text, tenant text, name text, low bigint, high bigint, most bigint) RETURNS bigint
    LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
DECLARE
    first   CONSTANT int := floor(low / 86400.0);
    last    CONSTANT int := least(floor(high / 86400.0)::int, first + 150000);
    fields  CONSTANT text[] := string_to_array(upper(array_to_string(cronstream.cron_fields(cron), ' ') COLLATE "C"), ' ');
    key     CONSTANT bytea := cronstream.hash_key(tenant, name);
    days    CONSTANT cronstream.cron_days := cronstream.cron_days(fields[4], fields[5], fields[6], key);
    seconds CONSTANT bigint := cronstream.cron_mask(1, fields[1], key);
    minutes CONSTANT bigint := cronstream.cron_mask(2, fields[2], key);
    hours   CONSTANT bigint := cronstream.cron_mask(3, fields[3], key);
    a_day   CONSTANT bigint := cronstream.cron_before(seconds, minutes, hours, 86400);
    found   bigint := 0;
    today   date;
BEGIN
    FOR day IN first..last LOOP
        today := date '1970-01-01' + day;
        CONTINUE WHEN days.months >> extract(month FROM today)::int & 1 = 0 OR NOT cronstream.cron_day_matches(
            days, extract(day FROM today)::int,
            extract(day FROM date_trunc('month', today::timestamp) + interval '1 month -1 day')::int,
            extract(dow FROM today)::int);
        found := found + a_day;
        IF day = first THEN
            found := found - cronstream.cron_before(seconds, minutes, hours, low - day * 86400::bigint);
        END IF;
        IF day = floor(high / 86400.0)::int THEN
            found := found - a_day + cronstream.cron_before(seconds, minutes, hours, high - day * 86400::bigint + 1);
        END IF;
        EXIT WHEN found > most;
    END LOOP;
    RETURN greatest(found, 0);
END $$;

-- The wall seconds since 1970 that a zone's clocks show from one instant to another: the least and the greatest, and what a change
-- skips at either end, so that no time of the range lies outside. NULL when this server does not know the zone. By the session's
-- zone, because AT TIME ZONE would read CET and EST as abbreviations.
CREATE FUNCTION cronstream.wall_range(zone text, earliest timestamptz, latest timestamptz, OUT low bigint, OUT high bigint)
    LANGUAGE plpgsql STABLE AS $$
DECLARE
    own    CONSTANT text := current_setting('TimeZone');
    change CONSTANT interval := '3 hours';  -- no clock is put back by more
BEGIN
    PERFORM set_config('TimeZone', zone, true);
    low := ceil(extract(epoch FROM earliest))
        + least(extract(timezone FROM earliest - interval '1 second'), extract(timezone FROM least(earliest + change, latest)));
    high := floor(extract(epoch FROM latest))
        + greatest(extract(timezone FROM latest), extract(timezone FROM greatest(latest - change, earliest)));
    PERFORM set_config('TimeZone', own, true);
EXCEPTION WHEN invalid_parameter_value THEN
    NULL;
END $$;

-- How many scheduled times a definition has from one instant to another, both included, by where its `every` counts from. 0 is
-- sure. More is exact, give or take those that changes of the zone's clock repeat or leave out, and counted to a little
-- more than `most`. NULL when this server does not know the zone.
CREATE FUNCTION cronstream.times_within(
    d cronstream.job_definitions, counts_from timestamptz, earliest timestamptz, latest timestamptz, most bigint) RETURNS bigint
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on AS $$
DECLARE
    spread CONSTANT interval := cronstream.spread_offset(d.spread_seconds, d.tenant, d.name);
    first  CONSTANT timestamptz := greatest(earliest, d.starts_at, CASE WHEN d.every IS NOT NULL THEN counts_from + spread END) - spread;
    last   CONSTANT timestamptz := least(latest, d.ends_at) - spread;
    every  CONSTANT bigint := cronstream.us(d.every);
    wall   record;
BEGIN
    IF first > last THEN
        RETURN 0;
    ELSIF d.run_at IS NOT NULL THEN
        RETURN (d.run_at BETWEEN first AND last)::int;
    ELSIF d.every IS NOT NULL THEN
        RETURN (cronstream.us(last) - cronstream.us(counts_from)) / every
             - (cronstream.us(first) - cronstream.us(counts_from) + every - 1) / every + 1;
    END IF;
    wall := cronstream.wall_range(d.timezone, first, last);
    RETURN cronstream.cron_count(d.cron, d.tenant, d.name, wall.low, wall.high, most);
END $$;
