-- The cron language in SQL: exactly what cronstream/schedule/grammar.py accepts, where it is written
-- down. Fields are numbered as there: 1 second, 2 minute, 3 hour, 4 day of month, 5 month, 6 day of
-- week. Every text below is upper-cased by the "C" collation, which knows ASCII letters alone.
--
--     cron_problem    the whole expression: characters, macro, number of fields, each field, a date
--     cron_list_reads one field by its pattern; the pattern says all but the order of ranges
--     cron_explain    why an item that does not read does not
--     cron_mask       what a field means: plain values and hashes as bits
--     cron_days       what the day fields mean together; cron_day_matches asks it about a day

-- What is wrong: the field ("cron" when no single one is), the part of it, what is allowed, the remedy.
CREATE TYPE cronstream.cron_problem AS (field text, part text, allowed text, remedy text);
CREATE FUNCTION cronstream.problem(field text, part text, allowed text, remedy text) RETURNS cronstream.cron_problem
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN ROW (field, part, allowed, remedy)::cronstream.cron_problem;

-- The pattern of "item," of a field, repeated: one or more. "number" is without names.
CREATE FUNCTION cronstream.cron_pattern(number text, value text, step text, special text) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN '^(((\*|(' || value || ')(-(' || value || '))?|H(\((' || number || ')-(' || number || ')\))?)(/(' || step || '))?'
           || special || '),)+$';
CREATE FUNCTION cronstream.cron_patterns() RETURNS text[]
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN ARRAY[
        cronstream.cron_pattern('[0-5]?[0-9]', '[0-5]?[0-9]', '0?[1-9]|[1-5][0-9]|60', ''),
        cronstream.cron_pattern('[0-5]?[0-9]', '[0-5]?[0-9]', '0?[1-9]|[1-5][0-9]|60', ''),
        cronstream.cron_pattern('[01]?[0-9]|2[0-3]', '[01]?[0-9]|2[0-3]', '0?[1-9]|1[0-9]|2[0-4]', ''),
        cronstream.cron_pattern('0?[1-9]|[12][0-9]|3[01]', '0?[1-9]|[12][0-9]|3[01]', '0?[1-9]|[12][0-9]|3[01]',
            '|LW?|(0?[1-9]|[12][0-9]|3[01])W'),
        cronstream.cron_pattern('0?[1-9]|1[0-2]',
            '0?[1-9]|1[0-2]|JAN|FEB|MAR|APR|MAY|JUN|JUL|AUG|SEP|OCT|NOV|DEC', '0?[1-9]|1[0-2]', ''),
        cronstream.cron_pattern('0?[0-6]', '0?[0-7]|SUN|MON|TUE|WED|THU|FRI|SAT', '0?[1-7]',
            '|(0?[0-7]|SUN|MON|TUE|WED|THU|FRI|SAT)(L|#0?[1-5])')
    ];

-- What most expressions are, all of them valid and sure to match some date: no judgement of ranges
-- or of days beyond the 28th is needed. A small part of the language, because a row pays for the
-- pattern's size; what is outside is looked at closely.
CREATE FUNCTION cronstream.plain_cron() RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN '^([*H](/[1-5]?[1-9]|/[1-5]0)?|([0-5]?[0-9],)*[0-5]?[0-9]) '
        || '([*H](/[1-9])?|[0-9]-1[0-9]|((1?[0-9]|2[0-3]),)*(1?[0-9]|2[0-3])) '
        || '([*?]|((1?[1-9]|[12]0|2[1-8]),)*(1?[1-9]|[12]0|2[1-8])) \* '
        || '([*?]|([0-7]|SUN|MON|TUE|WED|THU|FRI|SAT)([-,]([0-7]|SUN|MON|TUE|WED|THU|FRI|SAT))?)$';

-- A number or name that the field's pattern lets through.
CREATE FUNCTION cronstream.cron_number(field int, value text) RETURNS int
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN CASE WHEN value ~ '^[0-9]' THEN value::int
                WHEN field = 5 THEN strpos('JANFEBMARAPRMAYJUNJULAUGSEPOCTNOVDEC', value) / 3 + 1
                ELSE strpos('SUNMONTUEWEDTHUFRISAT', value) / 3 END;

-- Is the text items of the field, one or more? Ranges do not run backwards, weekdays' own excepted.
CREATE FUNCTION cronstream.cron_list_reads(field int, list text) RETURNS boolean
    LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
DECLARE
    item  text;
    bound text[];
BEGIN
    IF list || ',' !~ (cronstream.cron_patterns())[field] THEN
        RETURN false;
    ELSIF strpos(list, CASE WHEN field = 6 THEN '(' ELSE '-' END) > 0 THEN
        FOREACH item IN ARRAY string_to_array(list, ',') LOOP
            bound := regexp_match(item, CASE WHEN field = 6 THEN '\((.+)-(.+)\)' ELSE '([0-9A-Z]+)-([0-9A-Z]+)' END);
            IF cronstream.cron_number(field, bound[1]) > cronstream.cron_number(field, bound[2]) THEN
                RETURN false;
            END IF;
        END LOOP;
    END IF;
    RETURN true;
END $$;

-- Why a field does not read. `written` is the field as the user wrote it.
CREATE FUNCTION cronstream.cron_explain(field int, written text) RETURNS cronstream.cron_problem
    LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
DECLARE
    names CONSTANT text[] := ARRAY['second', 'minute', 'hour', 'day of month', 'month', 'day of week'];
    lows  CONSTANT int[] := ARRAY[0, 0, 0, 1, 1, 0];
    highs CONSTANT int[] := ARRAY[59, 59, 23, 31, 12, 6];
    units CONSTANT text[] := ARRAY['S', 'M', 'H'];
    forms CONSTANT text := '"*", lists, ranges, steps';
    value CONSTANT text := '([0-9]{1,2}|[A-Z]{3})';
    allowed CONSTANT text := CASE field
        WHEN 4 THEN '1-31, ' || forms || ', "?", "L", "LW", nearest weekday such as "15W"'
        WHEN 5 THEN '1-12, JAN-DEC, ' || forms
        WHEN 6 THEN '0-7, SUN-SAT, ' || forms || ', "?", last such as "FRIL", nth such as "MON#2"'
        ELSE format('%s-%s, %s', lows[field], highs[field], forms) END;
    part  text;
    item  text;
    step  text;
    shape text[];
BEGIN
    FOREACH part IN ARRAY string_to_array(written, ',') LOOP
        item := upper(part COLLATE "C");
        CONTINUE WHEN cronstream.cron_list_reads(field, item);
        shape := regexp_match(item, '^(?:\*|' || value || '(?:-' || value || ')?|H(\([0-9]{1,2}-[0-9]{1,2}\))?)(?:/([0-9]+))?$');
        step := ltrim(shape[4], '0');
        IF part = '' THEN
            RETURN cronstream.problem(names[field], written, allowed, 'a list has a value on both sides of each comma');
        ELSIF shape[4] IS NOT NULL AND (length(shape[4]) > 2 OR shape[4]::int NOT BETWEEN 1 AND highs[field] - lows[field] + 1) THEN
            RETURN cronstream.problem(names[field], part, format('a step from 1 to %s', highs[field] - lows[field] + 1),
                'a step counts values of its own field'
                || CASE WHEN field <= 3 AND step <> '' THEN '; a fixed distance goes into every'
                        || CASE WHEN length(shape[4]) < 6 THEN format(', such as %L', 'PT' || step || units[field]) ELSE '' END
                        || ', in place of cron' ELSE '' END);
        ELSIF shape[3] IS NOT NULL THEN
            RETURN cronstream.problem(names[field], part, format('H(a-b) with %s <= a <= b <= %s', lows[field], highs[field]), '');
        ELSIF item || ',' ~ (cronstream.cron_patterns())[field] THEN
            RETURN cronstream.problem(names[field], part, 'a range from low to high',
                format('write "%s-%s,%s-%s" for a range that wraps around', shape[1], highs[field], lows[field], shape[2]));
        ELSIF field = 6 AND item ~ ('^(0?[0-7]|SUN|MON|TUE|WED|THU|FRI|SAT)#[0-9]{1,2}$') THEN
            RETURN cronstream.problem(names[field], part, 'a number from 1 to 5 after "#"', '');
        END IF;
        RETURN cronstream.problem(names[field], part, allowed, CASE
            WHEN field = 6 AND item = 'L' THEN 'the last Friday of a month is "FRIL" or "5L", Saturday is "SAT"'
            WHEN item = '?' THEN 'only the day fields may be "?"; write "*"'
            ELSE '' END);
    END LOOP;
    RETURN NULL;
END $$;

-- What a job's hashes are made of: the digest's 32-bit words 0 to 5 serve the six fields.
CREATE FUNCTION cronstream.hash_key(tenant text, name text) RETURNS bytea
    LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
BEGIN
    RETURN sha256(convert_to(coalesce(tenant, ''), 'UTF8') || '\x00'::bytea || convert_to(coalesce(name, ''), 'UTF8'));
END $$;

-- The values of a field that reads, as bits: plain ones, and what each H picks by the key.
CREATE FUNCTION cronstream.cron_mask(field int, list text, key bytea) RETURNS bigint
    LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
DECLARE
    low       CONSTANT int := (ARRAY[0, 0, 0, 1, 1, 0])[field];
    high      CONSTANT int := (ARRAY[59, 59, 23, 31, 12, 6])[field];
    hash_high CONSTANT int := (ARRAY[59, 59, 23, 28, 12, 6])[field];
    word      CONSTANT bigint := ('x' || encode(substr(key, 4 * field - 3, 4), 'hex'))::bit(32)::bigint;
    mask      bigint := 0;
    item      text;
    shape     text[];
    step      int;
    a         int;
    b         int;
BEGIN
    FOREACH item IN ARRAY string_to_array(replace(list, '?', '*'), ',') LOOP
        CONTINUE WHEN field = 4 AND item ~ '[LW]$' OR field = 6 AND item ~ 'L$|#';
        shape := regexp_match(item, '^(\*|H|[0-9A-Z]+)(?:-([0-9A-Z]+)|\(([0-9]+)-([0-9]+)\))?(?:/([0-9]+))?$');
        step := coalesce(shape[5]::int, 1);
        IF shape[1] = '*' THEN
            a := low;
            b := high;
        ELSIF shape[1] = 'H' THEN
            a := coalesce(shape[3]::int, low);
            IF shape[5] IS NULL THEN
                b := coalesce(shape[4]::int, hash_high);
                a := a + (word % (b - a + 1))::int;
                b := a;
            ELSE
                b := coalesce(shape[4]::int, high);
                a := a + (word % least(step, b - a + 1, CASE WHEN field = 4 AND b = high THEN hash_high ELSE step END))::int;
            END IF;
        ELSE
            a := cronstream.cron_number(field, shape[1]);
            b := coalesce(cronstream.cron_number(field, shape[2]), CASE WHEN shape[5] IS NULL THEN a ELSE high END);
            IF field = 6 AND a = 7 AND (b < a OR shape[2] IS NULL AND shape[5] IS NOT NULL) THEN
                a := 0;
            ELSIF a > b THEN
                b := b + 7;
            END IF;
        END IF;
        FOR value IN a..b BY step LOOP
            mask := mask | (1::bigint << CASE WHEN field = 6 THEN value % 7 ELSE value END);
        END LOOP;
    END LOOP;
    RETURN mask;
END $$;

-- The fields that choose a day, resolved. Bits: n is day or month n, w is weekday w; of "w#n" 7 (n - 1) + w.
CREATE TYPE cronstream.cron_days AS (
    months bigint, days bigint, last_day boolean, last_workday boolean, nearest_workdays bigint,
    weekdays bigint, nth_weekdays bigint, last_weekdays bigint,
    either boolean  -- neither begins with "*": one match is enough
);
CREATE FUNCTION cronstream.cron_days(day text, month text, weekday text, key bytea) RETURNS cronstream.cron_days
    LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
DECLARE
    made cronstream.cron_days;
    item text[];
BEGIN
    made.months := cronstream.cron_mask(5, month, key);
    made.days := cronstream.cron_mask(4, day, key);
    made.weekdays := cronstream.cron_mask(6, weekday, key);
    made.last_day := 'L' = ANY (string_to_array(day, ','));
    made.last_workday := 'LW' = ANY (string_to_array(day, ','));
    made.either := day !~ '^[*?]' AND weekday !~ '^[*?]';
    made.nearest_workdays := 0;
    FOR item IN SELECT regexp_matches(day, '([0-9]+)W', 'g') LOOP
        made.nearest_workdays := made.nearest_workdays | (1::bigint << item[1]::int);
    END LOOP;
    made.nth_weekdays := 0;
    made.last_weekdays := 0;
    FOR item IN SELECT regexp_matches(weekday, '([0-9A-Z]+)(?:L|#([0-9]+))(?:,|$)', 'g') LOOP
        IF item[2] IS NULL THEN
            made.last_weekdays := made.last_weekdays | (1::bigint << cronstream.cron_number(6, item[1]) % 7);
        ELSE
            made.nth_weekdays := made.nth_weekdays | (1::bigint << 7 * (item[2]::int - 1) + cronstream.cron_number(6, item[1]) % 7);
        END IF;
    END LOOP;
    RETURN made;
END $$;

-- Does the day match, in a month of this length, being this weekday (0 is Sunday)? The month itself is not asked.
CREATE FUNCTION cronstream.cron_day_matches(c cronstream.cron_days, day int, length int, weekday int) RETURNS boolean
    LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
DECLARE
    by_day CONSTANT boolean :=
        c.days >> day & 1 = 1
        OR c.last_day AND day = length
        OR weekday BETWEEN 1 AND 5 AND (
            c.last_workday AND (day = length OR weekday = 5 AND day >= length - 2)
            OR c.nearest_workdays >> day & 1 = 1
            OR weekday = 5 AND day < length AND c.nearest_workdays >> day + 1 & 1 = 1      -- of Saturday
            OR weekday = 1 AND day > 1 AND c.nearest_workdays >> day - 1 & 1 = 1           -- of Sunday
            OR weekday = 1 AND day = 3 AND c.nearest_workdays >> 1 & 1 = 1                 -- of Saturday the 1st
            OR weekday = 5 AND day = length - 2 AND c.nearest_workdays >> length & 1 = 1); -- of Sunday the last
    by_weekday CONSTANT boolean :=
        c.weekdays >> weekday & 1 = 1
        OR c.nth_weekdays >> (day - 1) / 7 * 7 + weekday & 1 = 1
        OR day > length - 7 AND c.last_weekdays >> weekday & 1 = 1;
BEGIN
    RETURN CASE WHEN c.either THEN by_day OR by_weekday ELSE by_day AND by_weekday END;
END $$;

-- Is there any date that matches? Over the years each day of each month falls on every weekday.
CREATE FUNCTION cronstream.cron_can_match(c cronstream.cron_days) RETURNS boolean
    LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
DECLARE
    lengths CONSTANT int[] := ARRAY[31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    length  int;
BEGIN
    -- a month's longest form first; February's 28 days matter to what counts from the end
    FOREACH length IN ARRAY ARRAY[31, 30, 29, 28] LOOP
        CONTINUE WHEN NOT EXISTS (
            SELECT FROM unnest(lengths) WITH ORDINALITY AS m (days, month)
            WHERE c.months >> m.month::int & 1 = 1 AND (m.days = length OR m.days = 28 AND length = 29));
        FOR day IN REVERSE length..1 LOOP
            FOR weekday IN 0..6 LOOP
                IF cronstream.cron_day_matches(c, day, length, weekday) THEN
                    RETURN true;
                END IF;
            END LOOP;
        END LOOP;
    END LOOP;
    RETURN false;
END $$;

-- NULL for an expression of the language, else the first thing that is wrong with it. A job's
-- tenant and name pick its hashes, and so whether "H(29-31)" of February is ever there.
CREATE FUNCTION cronstream.cron_problem(cron text, tenant text, name text) RETURNS cronstream.cron_problem
    LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
DECLARE
    forms CONSTANT text := '5 fields (minute hour day-of-month month day-of-week), 6 with seconds first, '
                           'or @yearly, @monthly, @weekly, @daily, @hourly';
    macro text;
    found text[];
    texts text[];
    count int;
    day   text;
    weekday text;
BEGIN
    IF length(cron) > 1000 THEN
        RETURN cronstream.problem('cron', '', 'at most 1000 characters', '');
    ELSIF cron ~ '[^ -~\t]' THEN
        RETURN cronstream.problem('cron', format('U+%s', upper(lpad(to_hex(ascii(substring(cron FROM '[^ -~\t]'))), 4, '0'))),
                'ASCII letters, digits and signs, spaces and tabs', '');
    END IF;
    texts := array_remove(string_to_array(replace(cron, E'\t', ' '), ' '), '');
    IF texts[1] LIKE '@%' THEN
        macro := CASE WHEN cardinality(texts) = 1 THEN lower(texts[1] COLLATE "C") END;
        IF macro = ANY (ARRAY['@yearly', '@annually', '@monthly', '@weekly', '@daily', '@midnight', '@hourly']) THEN
            RETURN NULL;
        END IF;
        RETURN cronstream.problem('cron', '', '@yearly, @annually, @monthly, @weekly, @daily, @midnight, @hourly',
                CASE WHEN strpos(cron, 'every') > 0 THEN 'an interval goes into every, in place of cron' ELSE '' END);
    END IF;
    count := cardinality(texts);
    IF count NOT IN (5, 6) THEN
        RETURN cronstream.problem('cron', '', forms, format('this has %s field%s%s', count, CASE WHEN count = 1 THEN '' ELSE 's' END,
                CASE WHEN count = 7 THEN '; there is no year field' ELSE '' END));
    END IF;
    found := string_to_array(upper(array_to_string(texts, ' ') COLLATE "C"), ' ');
    FOR i IN 1..count LOOP
        IF NOT (cronstream.cron_list_reads(i + 6 - count, found[i]) OR found[i] = '?' AND i + 6 - count IN (4, 6)) THEN
            RETURN cronstream.cron_explain(i + 6 - count, texts[i]);
        END IF;
    END LOOP;
    -- What surely matches some date, without a look at the calendar.
    day := found[count - 2];
    weekday := found[count];
    IF day IN ('*', '?')                                                       -- any weekday item has its day
       OR day ~ '^[^*?]' AND weekday ~ '^[^*?]'                                -- either is enough
       OR weekday ~ '^[^#L]*$' AND day ~ '^[*?]|(^|,)(0?[1-9]|1[0-9]|2[0-8])([-/,]|$)'  -- a day of every month
       OR weekday IN ('*', '?') AND (day ~ '(^|,)(L|(0?[1-9]|1[0-9]|2[0-8])W)'
                                     OR found[count - 1] = '*' AND day ~ '^[0-9]') THEN
        RETURN NULL;
    ELSIF NOT cronstream.cron_can_match(
        cronstream.cron_days(day, found[count - 1], weekday, cronstream.hash_key(tenant, name))) THEN
        RETURN cronstream.problem('cron', '', 'an expression that some date matches',
                'its day of month, month and day of week never meet');
    END IF;
    RETURN NULL;
END $$;

-- The six fields of a valid expression, as they are written.
CREATE FUNCTION cronstream.cron_fields(cron text) RETURNS text[]
    LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
DECLARE
    texts text[] := array_remove(string_to_array(replace(cron, E'\t', ' '), ' '), '');
BEGIN
    IF cardinality(texts) = 1 THEN
        texts := string_to_array(CASE upper(texts[1] COLLATE "C")
            WHEN '@HOURLY' THEN '0 * * * *' WHEN '@WEEKLY' THEN '0 0 * * 0' WHEN '@MONTHLY' THEN '0 0 1 * *'
            WHEN '@YEARLY' THEN '0 0 1 1 *' WHEN '@ANNUALLY' THEN '0 0 1 1 *' ELSE '0 0 * * *' END, ' ');
    END IF;
    RETURN CASE WHEN cardinality(texts) = 5 THEN '0'::text || texts ELSE texts END;
END $$;

-- True, or raises through refuse().
CREATE FUNCTION cronstream.check_cron(cron text, tenant text, name text) RETURNS boolean
    LANGUAGE plpgsql AS $$
DECLARE
    p CONSTANT cronstream.cron_problem := cronstream.cron_problem(cron, tenant, name);
BEGIN
    IF p.allowed = 'an expression that some date matches' THEN
        RETURN cronstream.refuse('cron', 'never fires: no date matches it', cron,
            format('Allowed: %s; %s. To park a job, set enabled = false.', p.allowed, p.remedy));
    ELSIF p.field IS NOT NULL THEN
        RETURN cronstream.refuse('cron',
            CASE WHEN p.field = 'cron' THEN 'is not a cron expression' ELSE format('is not a cron expression: its %s is not allowed', p.field) END,
            -- a control or a look-alike sign does not get into logs and terminals this way
            regexp_replace(cron, '[^ -~]', '?', 'g'),
            format('Allowed%s: %s%s.', CASE WHEN p.field = 'cron' THEN '' ELSE ' as ' || p.field END,
                   p.allowed, CASE WHEN p.remedy = '' THEN '' ELSE '; ' || p.remedy END),
            CASE WHEN p.field = 'cron' THEN nullif(p.part, '') ELSE format('%s as %s', quote_literal(left(p.part, 40)), p.field) END);
    END IF;
    RETURN true;
END $$;
