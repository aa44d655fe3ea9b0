-- The times of a valid cron expression as far as SQL needs them: whether there is one between two bounds, and at least
-- how many. cronstream/schedule tells them all.

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

-- How many times a valid expression has from one instant to another, both included, at least: in UTC all of them, in a zone all
-- that its clocks cannot take away. Counted to a little more than `most`, and over 150,000 days at the most.
CREATE FUNCTION cronstream.cron_at_least(
    cron text, tenant text, name text, timezone text, earliest timestamptz, latest timestamptz, most bigint) RETURNS bigint
    LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
DECLARE
    -- wall seconds since 1970 that lie within, whatever the zone: from 12 hours behind to 14 ahead
    low     CONSTANT bigint := ceil(extract(epoch FROM earliest)) + CASE timezone WHEN 'UTC' THEN 0 ELSE 14 * 3600 END;
    high    CONSTANT bigint := floor(extract(epoch FROM latest)) - CASE timezone WHEN 'UTC' THEN 0 ELSE 12 * 3600 END;
    first   CONSTANT int := floor(low / 86400.0);
    last    CONSTANT int := least(floor(high / 86400.0)::int, first + 150000);
    fields  CONSTANT text[] := string_to_array(upper(array_to_string(cronstream.cron_fields(cron), ' ') COLLATE "C"), ' ');
    key     CONSTANT bytea := cronstream.hash_key(tenant, name);
    days    CONSTANT cronstream.cron_days := cronstream.cron_days(fields[4], fields[5], fields[6], key);
    seconds CONSTANT bigint := cronstream.cron_mask(1, fields[1], key);
    minutes CONSTANT bigint := cronstream.cron_mask(2, fields[2], key);
    hours   CONSTANT bigint := cronstream.cron_mask(3, fields[3], key);
    a_day   CONSTANT bigint := cronstream.cron_before(seconds, minutes, hours, 86400);
    -- a day that a zone left out, and twice a year two hours
    lost    CONSTANT bigint := CASE timezone WHEN 'UTC' THEN 0 ELSE a_day + bit_count(minutes::bit(64)) * bit_count(seconds::bit(64))
                                                                            * 2 * (1 + (last - first) / 180) END;
    found   bigint := 0;
    today   date;
BEGIN
    IF a_day * (last - first + 1) <= most THEN
        RETURN 0;  -- not so many at all
    END IF;
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
        EXIT WHEN found - lost > most;
    END LOOP;
    RETURN greatest(found - lost, 0);
END $$;
