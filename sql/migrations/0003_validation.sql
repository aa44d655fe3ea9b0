-- A definition is validated in its user's own transaction: every column, and what they say together.

-- Refuse a row: which column (or a part of one: payload.url), what is wrong, the offending value, the
-- remedy; where a part of a longer value offends, that part. Call it in an assignment of plain
-- expressions, never by PERFORM or with a subquery: those put their whole text into the error's CONTEXT.
CREATE FUNCTION cronstream.refuse(col text, problem text, offending text, remedy text, part text DEFAULT NULL) RETURNS boolean
    LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION USING
        ERRCODE = 'invalid_parameter_value',
        MESSAGE = format('%s %s', col, problem),
        DETAIL = CASE WHEN offending IS NULL THEN format('%s is NULL.', col)
                      WHEN length(offending) > 200 THEN format('%s is %s... (%s characters).', col, quote_literal(left(offending, 200)), length(offending))
                      ELSE format('%s is %s.', col, quote_literal(offending)) END || coalesce(' It has ' || part || '.', ''),
        HINT = remedy,
        SCHEMA = 'cronstream', TABLE = 'job_definitions', COLUMN = split_part(col, '.', 1);
END $$;

-- Not exactly one schedule.
CREATE FUNCTION cronstream.refuse_schedule(cron text, every text, run_at text) RETURNS boolean
    LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION USING
        ERRCODE = 'invalid_parameter_value',
        MESSAGE = 'exactly one of cron, every and run_at must be set',
        DETAIL = CASE WHEN num_nonnulls(cron, every, run_at) = 0 THEN 'None of them is set.'
                      ELSE format('Set are %s.', concat_ws(' and ', 'cron = ' || quote_literal(left(cron, 60)),
                                  'every = ' || quote_literal(every), 'run_at = ' || quote_literal(run_at))) END,
        HINT = CASE WHEN num_nonnulls(cron, every, run_at) = 0
                    THEN 'Set cron (''*/5 * * * *''), every (''5 minutes'') or run_at (''2030-01-01T00:00:00Z'').'
                    ELSE 'Set the others to NULL.' END,
        SCHEMA = 'cronstream', TABLE = 'job_definitions',
        COLUMN = CASE WHEN cron IS NOT NULL OR num_nonnulls(every, run_at) = 0 THEN 'cron' ELSE 'every' END;
END $$;

-- The name that was probably meant: equal but for a stretch of two letters at most, or begun alike.
CREATE FUNCTION cronstream.nearest(written text, names text[]) RETURNS text
    LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
DECLARE
    given CONSTANT text := lower(left(written, 40));
    name  text;
    low   text;
    same  int;
BEGIN
    FOREACH name IN ARRAY names LOOP
        low := lower(name);
        same := 0;
        WHILE same < least(length(low), length(given)) AND left(low, same + 1) = left(given, same + 1) LOOP
            same := same + 1;
        END LOOP;
        IF same = least(length(low), length(given)) AND same > 0 THEN
            RETURN name;
        END IF;
        FOR tail IN REVERSE least(length(low), length(given)) - same..0 LOOP
            IF right(low, tail) = right(given, tail) THEN
                IF same + tail > 0 AND same + tail >= greatest(length(low), length(given)) - 2 THEN
                    RETURN name;
                END IF;
                EXIT;
            END IF;
        END LOOP;
    END LOOP;
    RETURN NULL;
END $$;

-- Says which of the bounded columns is out of bounds, or missing; or says it of `one` alone, which was written as no row
-- can hold it, if it has bounds. NaN is greater than every number, so the upper bounds keep it and infinity out.
CREATE FUNCTION cronstream.explain_bounds(d cronstream.job_definitions, one text DEFAULT NULL, written text DEFAULT NULL) RETURNS boolean
    LANGUAGE plpgsql AS $$
DECLARE
    bad  record;
    near text;
BEGIN
    SELECT * INTO bad FROM (VALUES
        ('misfire_policy', d.misfire_policy, d.misfire_policy IN ('FIRE_NOW', 'SKIP', 'CATCH_UP'), 'one of FIRE_NOW, SKIP, CATCH_UP', 'FIRE_NOW'),
        ('overlap_policy', d.overlap_policy, d.overlap_policy IN ('allow', 'queue', 'skip'), 'one of allow, queue, skip', 'allow'),
        ('dst_gap', d.dst_gap, d.dst_gap IN ('auto', 'shift', 'skip'), 'one of auto, shift, skip', 'auto'),
        ('dst_overlap', d.dst_overlap, d.dst_overlap IN ('auto', 'first', 'second', 'both'), 'one of auto, first, second, both', 'auto'),
        ('jitter', d.jitter, d.jitter IN ('full', 'equal', 'none'), 'one of full, equal, none', 'full'),
        ('misfire_grace', d.misfire_grace::text, d.misfire_grace BETWEEN interval '0' AND interval '1 day', 'from 0 to 1 day', '60 seconds'),
        ('catch_up_limit', d.catch_up_limit::text, d.catch_up_limit BETWEEN 1 AND 10000, 'from 1 to 10000', '100'),
        ('spread_seconds', d.spread_seconds::text, d.spread_seconds BETWEEN 0 AND 86400, 'from 0 to 86400', '0'),
        ('max_attempts', d.max_attempts::text, d.max_attempts BETWEEN 1 AND 1000, 'from 1 to 1000', '5'),
        ('backoff_seconds', d.backoff_seconds::text, d.backoff_seconds BETWEEN 0 AND 86400, 'from 0 to 86400', '30'),
        ('backoff_factor', d.backoff_factor::text, d.backoff_factor BETWEEN 1 AND 100, 'from 1 to 100', '2'),
        ('max_backoff', d.max_backoff::text, d.max_backoff BETWEEN interval '0' AND interval '24 hours', 'from 0 to 24 hours', '1 hour'),
        ('timeout_seconds', d.timeout_seconds::text, d.timeout_seconds > 0 AND d.timeout_seconds <= 86400, 'more than 0 and at most 86400', '300'),
        ('enabled', NULL, d.enabled IS NOT NULL, 'true or false', 'true')
    ) AS bounds (col, given, good, allowed, usual) WHERE good IS NOT TRUE AND col = coalesce(one, col) LIMIT 1;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    IF bad.allowed LIKE 'one of %' THEN
        near := cronstream.nearest(bad.given, string_to_array(substr(bad.allowed, 8), ', '));
    END IF;
    RETURN cronstream.refuse(bad.col, 'must be ' || bad.allowed, coalesce(written, bad.given),
        coalesce('Did you mean ' || near || '? ', '') || format('Left out, it is %s.', bad.usual));
END $$;

-- What the spread adds to a job's scheduled times: whole seconds, by the seventh word of its hash.
CREATE FUNCTION cronstream.spread_offset(spread_seconds int, tenant text, name text) RETURNS interval
    LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
BEGIN
    IF coalesce(spread_seconds, 0) = 0 THEN
        RETURN interval '0';
    END IF;
    RETURN ('x' || encode(substr(cronstream.hash_key(tenant, name), 25, 4), 'hex'))::bit(32)::bigint % spread_seconds * interval '1 second';
END $$;

-- Bounds must hold a scheduled time: true, or raises through refuse(). `counts_from` is where every counts
-- from at the earliest, NULL where only the coordinator knows. What is not sure here is left to it.
CREATE FUNCTION cronstream.check_window(d cronstream.job_definitions, counts_from timestamptz) RETURNS boolean
    LANGUAGE plpgsql AS $$
DECLARE
    spread CONSTANT interval := cronstream.spread_offset(d.spread_seconds, d.tenant, d.name);
    -- where every search of the leader's ends: cron and every have no time from the year 9999 on
    forever CONSTANT timestamptz := timestamptz '9998-12-31 23:59:59.999999+00' + spread;
    last  CONSTANT timestamptz := least(d.ends_at, forever);
    first timestamptz;
    steps bigint := 0;
    found boolean := true;
    remedy text := 'As it is, the job would never fire.';
BEGIN
    IF d.run_at IS NOT NULL THEN
        first := d.run_at + spread;
        IF first < d.starts_at OR first > d.ends_at THEN
            RETURN cronstream.refuse('run_at', format('is not within starts_at and ends_at (%s to %s)%s', coalesce(d.starts_at::text, 'any'),
                coalesce(d.ends_at::text, 'any'), CASE WHEN spread = '0' THEN '' ELSE format(' with its spread of %s', spread) END),
                d.run_at::text, remedy);
        END IF;
        RETURN true;
    ELSIF d.starts_at > last THEN
        found := false;
    ELSIF d.every IS NOT NULL AND d.anchor IS NULL THEN
        -- the commit is later than this, and its own instant is none of the times unless the spread moves it
        IF d.ends_at < counts_from THEN
            RETURN cronstream.refuse('ends_at', 'is over: every counts from now, where there is no anchor', d.ends_at::text, remedy);
        ELSIF cronstream.us(d.ends_at) < cronstream.us(counts_from)
                + (CASE WHEN spread = '0' THEN cronstream.us(d.every) ELSE least(cronstream.us(spread), cronstream.us(d.every)) END) THEN
            RETURN cronstream.refuse('ends_at', format('is before the first time: every counts from now, where there is no anchor, and is %s',
                d.every), d.ends_at::text, remedy);
        END IF;
    ELSIF d.every IS NOT NULL THEN
        first := d.anchor + spread;
        IF first < d.starts_at THEN
            steps := (cronstream.us(d.starts_at) - cronstream.us(first) + cronstream.us(d.every) - 1) / cronstream.us(d.every);
        END IF;
        found := cronstream.us(first) + steps * cronstream.us(d.every) <= cronstream.us(last);
    ELSIF d.starts_at IS NOT NULL THEN
        found := cronstream.cron_within(d.cron, d.tenant, d.name, d.timezone, d.starts_at - spread, last - spread);
    END IF;
    IF found THEN
        RETURN true;
    ELSIF last = forever THEN
        RETURN cronstream.refuse('starts_at', 'leaves no time before the year 9999, where every schedule ends', d.starts_at::text, remedy);
    ELSIF d.cron IS NOT NULL THEN
        RETURN cronstream.refuse('ends_at', format('leaves no time for cron %L after starts_at %s', left(d.cron, 60), d.starts_at),
            d.ends_at::text, remedy);
    END IF;
    RETURN cronstream.refuse('ends_at', CASE WHEN d.starts_at IS NULL THEN format('is before the first time, %s', first)
        ELSE format('leaves no time for every %s from the anchor %s on after starts_at %s', d.every, d.anchor, d.starts_at) END,
        d.ends_at::text, remedy);
END $$;

-- Characters of a bracket expression that no name may hold: controls, what Unicode says may be ignored when text is shown
-- (joiners, directions, tags, variation selectors), and what is no character. Two names that look the same are the same.
CREATE FUNCTION cronstream.unseen() RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN '\u0001-\u001f\u007f-\u009f\u2028-\u2029\u00ad\u034f\u061c\u115f-\u1160\u17b4-\u17b5\u180b-\u180f\u200b-\u200f'
           '\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\U0001bca0-\U0001bca3\U0001d173-\U0001d17a'
           '\U000e0000-\U000e0fff\u2800\ufdd0-\ufdef\ufff0-\ufffb\ufffe-\uffff\U0001fffe-\U0001ffff\U0002fffe-\U0002ffff'
           '\U0003fffe-\U0003ffff\U0004fffe-\U0004ffff\U0005fffe-\U0005ffff\U0006fffe-\U0006ffff\U0007fffe-\U0007ffff'
           '\U0008fffe-\U0008ffff\U0009fffe-\U0009ffff\U000afffe-\U000affff\U000bfffe-\U000bffff\U000cfffe-\U000cffff'
           '\U000dfffe-\U000dffff\U000efffe-\U000effff\U000ffffe-\U000fffff\U0010fffe-\U0010ffff';

-- Spaces of all kinds, of which a name must not consist.
CREATE FUNCTION cronstream.blanks() RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN '\u0020\u00a0\u1680\u2000-\u200a\u202f\u205f\u3000';

-- A name or an id that is not plain ASCII: true, or raises through refuse().
CREATE FUNCTION cronstream.check_name(col text, given text, most int) RETURNS boolean
    LANGUAGE plpgsql AS $$
DECLARE
    remedy text;
    met    text;
    code   text;
BEGIN
    IF given !~ ('[' || cronstream.unseen() || ']') AND given ~ ('[^' || cronstream.blanks() || ']') AND length(given) <= most THEN
        RETURN true;
    END IF;
    remedy := format('One to %s characters that can be seen, and spaces.', most);
    met := substring(given FROM '[' || cronstream.unseen() || ']');
    IF met IS NOT NULL THEN
        code := upper(to_hex(ascii(met)));
        RETURN cronstream.refuse(col, 'has a character that cannot be seen', regexp_replace(given, '[' || cronstream.unseen() || ']', U&'\FFFD', 'g'),
            remedy, format('U+%s as character %s', lpad(code, greatest(length(code), 4), '0'), strpos(given, met)));
    ELSIF length(given) > most THEN
        RETURN cronstream.refuse(col, format('has %s characters, more than %s', length(given), most), given, remedy);
    END IF;
    RETURN cronstream.refuse(col, 'is empty', given, remedy);
END $$;

-- Which row of a statement is refused, at the end of DETAIL. What cannot be seen of a name that is refused is marked.
CREATE FUNCTION cronstream.the_job(tenant text, name text) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN format('The job is %s/%s.', coalesce(left(regexp_replace(tenant, '[' || cronstream.unseen() || ']', U&'\FFFD', 'g'), 255), 'NULL'),
                  coalesce(left(regexp_replace(name, '[' || cronstream.unseen() || ']', U&'\FFFD', 'g'), 255), 'NULL'));

-- BEFORE each row: validate, stamp the revision. An UPDATE that changes nothing keeps
-- its revision, by which the change trigger knows it.
-- One long function of plain IFs on purpose: PL/pgSQL evaluates those without the
-- executor, a PERFORM or a composite argument costs as much as ten of them. That a refusal names its
-- row is the work of the handler at the end, which costs a good row half a microsecond.
CREATE FUNCTION cronstream.check_and_stamp() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on AS $$
DECLARE
    -- what a Python datetime can hold, whatever the zone; keeps infinity out as well
    earliest CONSTANT timestamptz := '0001-01-03 00:00:00+00';
    latest   CONSTANT timestamptz := '9999-12-29 00:00:00+00';
    years    CONSTANT text := 'An instant from 0001-01-03 to 9999-12-29, both at 00:00 UTC.';
    chosen   CONSTANT text := 'Leave job_id out; RETURNING job_id tells it.';
    checked  boolean;
    meant    text;
    counts_from timestamptz;
    message  text;
    detail   text;
    remedy   text;
    col      text;
BEGIN
    IF TG_OP = 'INSERT' THEN
        -- OVERRIDING SYSTEM VALUE could bring a used id back, the session's last one too
        IF NEW.job_id <> currval('cronstream.job_definitions_job_id_seq')
           OR NEW.job_id::text = current_setting('cronstream.last_job_id', true) THEN
            checked := cronstream.refuse('job_id', 'cannot be chosen', NEW.job_id::text, chosen);
        END IF;
        IF NEW.revision IS NOT NULL THEN
            checked := cronstream.refuse('revision', 'is set by the database', NEW.revision::text, 'Leave revision out.');
        END IF;
        NEW.created_at := now();
    ELSE
        IF NEW.job_id <> OLD.job_id THEN
            checked := cronstream.refuse('job_id', 'cannot be changed', NEW.job_id::text, 'Delete the job and insert a new one.');
        END IF;
        IF NEW.revision IS DISTINCT FROM OLD.revision THEN
            checked := cronstream.refuse('revision', 'is set by the database', NEW.revision::text,
                'Leave revision out: every edit of the row raises it.');
        END IF;
        NEW.created_at := OLD.created_at;
        NEW.updated_at := OLD.updated_at;
        IF NEW *= OLD THEN
            RETURN NEW;
        END IF;
    END IF;
    IF num_nonnulls(NEW.cron, NEW.every, NEW.run_at) <> 1 THEN
        checked := cronstream.refuse_schedule(NEW.cron, NEW.every::text, NEW.run_at::text);
    END IF;
    IF NEW.cron IS NOT NULL THEN
        -- the cron language is the next migration's; what people mostly write is settled by one look
        IF length(NEW.cron) > 1000 OR upper(NEW.cron COLLATE "C") !~ cronstream.plain_cron() THEN
            checked := cronstream.check_cron(NEW.cron, NEW.tenant, NEW.name);
        END IF;
    ELSIF NEW.every IS NOT NULL THEN
        IF extract(month FROM NEW.every) <> 0 OR extract(year FROM NEW.every) <> 0 THEN
            checked := cronstream.refuse('every', 'has months or years, which have no fixed length', NEW.every::text,
                'Use days, hours, minutes and seconds; for calendar months use cron.');
        ELSIF NEW.every < interval '1 second' THEN
            checked := cronstream.refuse('every', 'is shorter than one second', NEW.every::text, 'At least one second.');
        ELSIF NEW.every > interval '36500 days' THEN
            checked := cronstream.refuse('every', 'is longer than 36500 days', NEW.every::text, 'At most 36500 days.');
        END IF;
    ELSIF NEW.run_at NOT BETWEEN earliest AND latest THEN
        checked := cronstream.refuse('run_at', 'is out of range', NEW.run_at::text, years);
    END IF;
    IF NEW.anchor IS NOT NULL THEN
        IF NEW.every IS NULL THEN
            checked := cronstream.refuse('anchor', 'belongs to every', NEW.anchor::text, 'Leave it out, or set every.');
        ELSIF NEW.anchor < earliest OR NEW.anchor >= '9999-01-01 00:00:00+00' THEN
            checked := cronstream.refuse('anchor', 'is out of range', NEW.anchor::text,
                'An instant from 0001-01-03 at 00:00 UTC to the end of 9998, where every schedule ends.');
        END IF;
    END IF;
    IF NEW.starts_at NOT BETWEEN earliest AND latest THEN
        checked := cronstream.refuse('starts_at', 'is out of range', NEW.starts_at::text, years || ' Leave it out for no bound.');
    ELSIF NEW.ends_at NOT BETWEEN earliest AND latest THEN
        checked := cronstream.refuse('ends_at', 'is out of range', NEW.ends_at::text, years || ' Leave it out for no bound.');
    ELSIF NEW.starts_at > NEW.ends_at THEN
        checked := cronstream.refuse('ends_at', format('is before starts_at %L', NEW.starts_at), NEW.ends_at::text,
            'An instant at or after starts_at: both belong to the range.');
    END IF;
    IF NEW.timezone <> 'UTC' AND NEW.timezone <> ALL (cronstream.zone_names()) OR NEW.timezone IS NULL THEN
        SELECT z.name INTO meant FROM cronstream.zones z
        WHERE lower(z.name) = lower(btrim(NEW.timezone)) OR lower(z.name) LIKE '%/' || lower(replace(btrim(NEW.timezone), ' ', '\_'))
        ORDER BY length(z.name) LIMIT 1;
        checked := cronstream.refuse('timezone', 'is not an IANA time zone', NEW.timezone, coalesce('Did you mean ' || meant || '? ', '')
            || 'Exact names, as in cronstream.zones: Europe/Berlin, America/New_York, UTC.');
    END IF;
    IF NEW.name IS NULL THEN
        checked := cronstream.refuse('name', 'is missing', NULL, 'Name the job: tenant and name together are its own.');
    ELSIF NEW.handler IS NULL THEN
        checked := cronstream.refuse('handler', 'is missing', NULL, 'Say what to do: one of ' || array_to_string(cronstream.handlers(), ', ') || '.');
    ELSIF NEW.tenant IS NULL THEN
        checked := cronstream.refuse('tenant', 'is missing', NULL, 'Left out, it is ''default''.');
    END IF;
    -- what people mostly write is settled by one look
    IF NEW.name !~ '^[ -~]*[!-~][ -~]*$' OR length(NEW.name) > 255 THEN
        checked := cronstream.check_name('name', NEW.name, 255);
    END IF;
    IF NEW.tenant <> 'default' AND (NEW.tenant !~ '^[ -~]*[!-~][ -~]*$' OR length(NEW.tenant) > 255) THEN
        checked := cronstream.check_name('tenant', NEW.tenant, 255);
    END IF;
    IF NEW.handler <> ALL (cronstream.handlers()) THEN
        checked := cronstream.refuse('handler', 'is not known', NEW.handler, 'One of ' || array_to_string(cronstream.handlers(), ', ') || '.');
    END IF;
    checked := cronstream.check_payload(NEW.handler, NEW.payload);
    -- one look at all that is nearly always left at its default; the reasons are found only when it fails
    IF (NEW.misfire_policy IN ('FIRE_NOW', 'SKIP', 'CATCH_UP')
            AND NEW.overlap_policy IN ('allow', 'queue', 'skip')
            AND NEW.dst_gap IN ('auto', 'shift', 'skip')
            AND NEW.dst_overlap IN ('auto', 'first', 'second', 'both')
            AND NEW.jitter IN ('full', 'equal', 'none')
            AND NEW.misfire_grace BETWEEN interval '0' AND interval '1 day'
            AND NEW.catch_up_limit BETWEEN 1 AND 10000
            AND NEW.spread_seconds BETWEEN 0 AND 86400
            AND NEW.max_attempts BETWEEN 1 AND 1000
            AND NEW.backoff_seconds BETWEEN 0 AND 86400
            AND NEW.backoff_factor BETWEEN 1 AND 100
            AND NEW.max_backoff BETWEEN interval '0' AND interval '24 hours'
            AND NEW.enabled IS NOT NULL
            AND NEW.timeout_seconds > 0 AND NEW.timeout_seconds <= 86400) IS NOT TRUE THEN
        checked := cronstream.explain_bounds(NEW);
    END IF;
    IF NEW.starts_at IS NOT NULL OR NEW.ends_at IS NOT NULL THEN
        -- every counts from its own edit's commit, which is after this; else from one that nobody here knows
        IF TG_OP = 'INSERT' OR OLD.every IS DISTINCT FROM NEW.every THEN
            counts_from := now();
        END IF;
        checked := cronstream.check_window(NEW, counts_from);
    END IF;
    NEW.updated_at := now();
    NEW.revision := nextval('cronstream.revisions');
    RETURN NEW;
EXCEPTION WHEN invalid_parameter_value OR object_not_in_prerequisite_state THEN
    GET STACKED DIAGNOSTICS message = MESSAGE_TEXT, detail = PG_EXCEPTION_DETAIL, remedy = PG_EXCEPTION_HINT, col = COLUMN_NAME;
    IF SQLSTATE = '55000' THEN
        -- of currval: this session has been given no id at all
        message := 'job_id cannot be chosen';
        detail := format('job_id is %L.', NEW.job_id);
        remedy := chosen;
        col := 'job_id';
    END IF;
    RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value', MESSAGE = message,
        DETAIL = ltrim(detail || ' ' || cronstream.the_job(NEW.tenant, NEW.name)), HINT = remedy,
        SCHEMA = 'cronstream', TABLE = 'job_definitions', COLUMN = col;
END $$;

CREATE TRIGGER aa_check_and_stamp BEFORE INSERT OR UPDATE ON cronstream.job_definitions
    FOR EACH ROW EXECUTE FUNCTION cronstream.check_and_stamp();
