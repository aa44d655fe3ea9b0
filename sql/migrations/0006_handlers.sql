-- The handlers that workers know, and one function a handler that says what it needs of its payload.

-- The one place that names them.
CREATE FUNCTION cronstream.handlers() RETURNS text[]
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN ARRAY['http', 'command', 'kafka', 'sql', 'python', 'log'];

-- The functions below say true or raise through refuse(). Unknown keys come first: `urll` is no missing url.

-- A handler's payload has the keys that it knows and no other: true, or raises through refuse().
CREATE FUNCTION cronstream.check_keys(handler text, payload jsonb, known text[]) RETURNS boolean
    LANGUAGE plpgsql AS $$
DECLARE
    key  text;
    near text;
BEGIN
    IF jsonb_typeof(payload) = 'object' AND payload - known <> '{}' THEN
        SELECT k INTO key FROM jsonb_object_keys(payload - known) AS k ORDER BY k LIMIT 1;
        near := cronstream.nearest(key, known);
        RETURN cronstream.refuse('payload', format('has a key that handler %s does not know: %s', handler, to_json(left(key, 40))),
            payload::text, coalesce('Did you mean ' || near || '? ', '') || 'Known: ' || array_to_string(known, ', ') || '.');
    END IF;
    RETURN true;
END $$;

-- A key that is a text, if it is there at all.
CREATE FUNCTION cronstream.check_text(payload jsonb, key text, example text) RETURNS boolean
    LANGUAGE plpgsql AS $$
BEGIN
    IF payload ? key AND jsonb_typeof(payload -> key) <> 'string' THEN
        RETURN cronstream.refuse('payload.' || key, 'must be a string', (payload -> key)::text, example);
    END IF;
    RETURN true;
END $$;

-- A key that is an object, if it is there at all.
CREATE FUNCTION cronstream.check_object(payload jsonb, key text, example text) RETURNS boolean
    LANGUAGE plpgsql AS $$
BEGIN
    IF payload ? key AND jsonb_typeof(payload -> key) <> 'object' THEN
        RETURN cronstream.refuse('payload.' || key, 'must be an object', (payload -> key)::text, example);
    END IF;
    RETURN true;
END $$;

-- headers.
CREATE FUNCTION cronstream.check_headers(payload jsonb, example text) RETURNS boolean
    LANGUAGE plpgsql AS $$
BEGIN
    IF payload ? 'headers' AND (jsonb_typeof(payload -> 'headers') <> 'object'
        OR jsonb_path_exists(payload, '$.headers.* ? (@.type() != "string")')) THEN
        RETURN cronstream.refuse('payload.headers', 'must be an object of strings', (payload -> 'headers')::text, example);
    END IF;
    RETURN true;
END $$;

-- headers that HTTP can carry, as the worker sends them: names are tokens, values have no control characters but tabs.
CREATE FUNCTION cronstream.check_http_headers(payload jsonb) RETURNS boolean
    LANGUAGE plpgsql AS $$
DECLARE
    named    text;
    is_token boolean;
BEGIN
    -- what people mostly write is settled by one look
    IF (payload -> 'headers')::text !~ '^\{("[!#$%&''*+.^_`|~0-9A-Za-z-]+": "[ !#-[\]-~]*"(, )?)+\}$' THEN
        SELECT h.key, h.key ~ '^[!#$%&''*+.^_`|~0-9A-Za-z-]+$' INTO named, is_token FROM jsonb_each_text(payload -> 'headers') AS h
        WHERE h.key !~ '^[!#$%&''*+.^_`|~0-9A-Za-z-]+$' OR h.value ~ '[\u0001-\u0008\u000a-\u001f\u007f]' LIMIT 1;
    END IF;
    -- its value may be a secret
    IF NOT is_token THEN
        RETURN cronstream.refuse('payload.headers', 'has a name that is no header''s', named, 'Letters, digits and !#$%&''*+-.^_`|~, such as X-Team.');
    ELSIF is_token THEN
        RETURN cronstream.refuse('payload.headers', format('has a value that no header holds: of %s', to_json(left(named, 40))), named,
            'One line, without control characters.');
    END IF;
    RETURN true;
END $$;

-- A list of whole numbers within bounds, each written as one: to workers 64.0 is none. jsonb writes no exponents.
CREATE FUNCTION cronstream.check_numbers(payload jsonb, key text, lowest int, highest int, example text) RETURNS boolean
    LANGUAGE plpgsql AS $$
BEGIN
    IF payload ? key AND (jsonb_typeof(payload -> key) <> 'array'
        OR (payload -> key)::text LIKE '%.%'
        OR jsonb_path_exists(payload -> key, 'strict $[*] ? (@.type() != "number" || @ < $lowest || @ > $highest)',
                             jsonb_build_object('lowest', lowest, 'highest', highest))) THEN
        RETURN cronstream.refuse('payload.' || key, format('must be a list of whole numbers from %s to %s', lowest, highest),
            (payload -> key)::text, example || ', without decimal points.');
    END IF;
    RETURN true;
END $$;

-- What a program shares with other programs: limits and final_exit_codes.
CREATE FUNCTION cronstream.check_program(payload jsonb) RETURNS boolean
    LANGUAGE plpgsql AS $$
DECLARE
    known CONSTANT text[] := ARRAY['cpu_seconds', 'memory_mib', 'file_mib', 'open_files'];
    key text;
BEGIN
    IF jsonb_typeof(payload -> 'limits') = 'object' AND (payload -> 'limits') - known <> '{}' THEN
        SELECT k INTO key FROM jsonb_object_keys((payload -> 'limits') - known) AS k ORDER BY k LIMIT 1;
        RETURN cronstream.refuse('payload.limits', format('has a limit that is not known: %s', to_json(left(key, 40))),
            (payload -> 'limits')::text, coalesce('Did you mean ' || cronstream.nearest(key, known) || '? ', '')
            || 'Known: ' || array_to_string(known, ', ') || '.');
    END IF;
    IF payload ? 'limits' AND (jsonb_typeof(payload -> 'limits') <> 'object'
        OR (payload -> 'limits')::text LIKE '%.%'
        OR jsonb_path_exists(payload, 'strict $.limits.* ? (@.type() != "number" || @ < 1 || @ > 1000000000)')) THEN
        RETURN cronstream.refuse('payload.limits', 'must be an object of whole numbers from 1',
            (payload -> 'limits')::text, '{"limits": {"cpu_seconds": 60, "memory_mib": 256}}, without decimal points.');
    END IF;
    RETURN cronstream.check_numbers(payload, 'final_exit_codes', 1, 255, '{"final_exit_codes": [64, 65]}');
END $$;

CREATE FUNCTION cronstream.check_http(payload jsonb) RETURNS boolean
    LANGUAGE plpgsql AS $$
DECLARE
    methods CONSTANT text[] := ARRAY['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE'];
    checked boolean;
BEGIN
    checked := cronstream.check_keys('http', payload, ARRAY['url', 'method', 'headers', 'body', 'timeout_seconds', 'retry_on']);
    -- a host, or an IPv6 address in brackets; a port only with its number
    IF (jsonb_typeof(payload -> 'url') = 'string'
        AND payload ->> 'url' ~* '^https?://([^[:space:]/?#@]*@)?(\[[0-9a-z:.%]+\]|[^][:space:]/?#@:[]+)(:[0-9]{1,5})?([/?#][^[:space:]]*)?$'
        AND coalesce(substring(payload ->> 'url' FROM '(?i)^https?://(?:[^/?#@]*@)?(?:\[[^]]*\]|[^/?#@:]*):([0-9]+)')::int, 80)
            BETWEEN 1 AND 65535) IS NOT TRUE THEN
        RETURN cronstream.refuse(CASE WHEN payload ? 'url' AND jsonb_typeof(payload) = 'object' THEN 'payload.url' ELSE 'payload' END,
            'needs an absolute http or https url for handler http',
            coalesce(payload -> 'url', payload)::text, '{"url": "https://example.org/hook"}');
    END IF;
    IF payload ? 'method' AND (jsonb_typeof(payload -> 'method') = 'string' AND payload ->> 'method' = ANY (methods)) IS NOT TRUE THEN
        RETURN cronstream.refuse('payload.method', 'is an unknown method', (payload -> 'method')::text,
            coalesce('Did you mean ' || cronstream.nearest(payload ->> 'method', methods) || '? ', '')
            || 'One of GET, HEAD, POST, PUT, PATCH, DELETE; POST when left out.');
    END IF;
    IF payload ? 'timeout_seconds' AND (jsonb_typeof(payload -> 'timeout_seconds') = 'number'
        AND jsonb_path_exists(payload, '$.timeout_seconds ? (@ > 0 && @ <= 86400)')) IS NOT TRUE THEN
        RETURN cronstream.refuse('payload.timeout_seconds', 'must be more than 0 and at most 86400', (payload -> 'timeout_seconds')::text,
            'Left out, only the job''s own timeout_seconds ends the request.');
    END IF;
    checked := cronstream.check_headers(payload, '{"headers": {"Authorization": "..."}}');
    checked := cronstream.check_http_headers(payload);
    checked := cronstream.check_numbers(payload, 'retry_on', 300, 999, '{"retry_on": [404, 409]}');
    RETURN true;
END $$;

CREATE FUNCTION cronstream.check_command(payload jsonb) RETURNS boolean
    LANGUAGE plpgsql AS $$
DECLARE
    checked boolean;
BEGIN
    checked := cronstream.check_keys('command', payload, ARRAY['argv', 'env', 'stdin', 'cwd', 'limits', 'final_exit_codes']);
    IF jsonb_typeof(payload -> 'argv') IS DISTINCT FROM 'array'
       OR jsonb_path_exists(payload, 'strict $.argv[*] ? (@.type() != "string")')
       OR coalesce(payload -> 'argv' ->> 0, '') = '' THEN
        RETURN cronstream.refuse(CASE WHEN payload ? 'argv' AND jsonb_typeof(payload) = 'object' THEN 'payload.argv' ELSE 'payload' END,
            'needs argv, a non-empty list of strings, for handler command',
            coalesce(payload -> 'argv', payload)::text, '{"argv": ["/usr/bin/env", "true"]}');
    END IF;
    IF payload ? 'env' AND (jsonb_typeof(payload -> 'env') <> 'object'
        OR jsonb_path_exists(payload, '$.env.* ? (@.type() != "string")')
        OR jsonb_path_exists(payload, '$.env.keyvalue() ? (@.key like_regex "=" || @.key == "")')) THEN
        RETURN cronstream.refuse('payload.env', 'must be an object of strings, its names without "="',
            (payload -> 'env')::text, '{"env": {"LEVEL": "9"}}');
    END IF;
    IF payload ? 'cwd' AND (jsonb_typeof(payload -> 'cwd') = 'string' AND payload ->> 'cwd' LIKE '/%') IS NOT TRUE THEN
        RETURN cronstream.refuse('payload.cwd', 'must be an absolute path', (payload -> 'cwd')::text, '{"cwd": "/srv/reports"}');
    END IF;
    checked := cronstream.check_text(payload, 'stdin', '{"stdin": "5\n"}');
    checked := cronstream.check_program(payload);
    RETURN true;
END $$;

CREATE FUNCTION cronstream.check_kafka(payload jsonb) RETURNS boolean
    LANGUAGE plpgsql AS $$
DECLARE
    checked boolean;
BEGIN
    checked := cronstream.check_keys('kafka', payload, ARRAY['topic', 'value', 'key', 'headers']);
    IF (jsonb_typeof(payload -> 'topic') = 'string' AND payload ->> 'topic' ~ '^[A-Za-z0-9._-]{1,249}$'
        AND payload ->> 'topic' NOT IN ('.', '..')) IS NOT TRUE THEN
        RETURN cronstream.refuse(CASE WHEN payload ? 'topic' AND jsonb_typeof(payload) = 'object' THEN 'payload.topic' ELSE 'payload' END,
            'needs a topic, 1 to 249 letters, digits, dots, underscores and hyphens, for handler kafka',
            coalesce(payload -> 'topic', payload)::text, '{"topic": "orders.nightly"}');
    END IF;
    checked := cronstream.check_text(payload, 'key', '{"key": "customer-7"}');
    checked := cronstream.check_headers(payload, '{"headers": {"source": "nightly"}}');
    RETURN true;
END $$;

CREATE FUNCTION cronstream.check_sql(payload jsonb) RETURNS boolean
    LANGUAGE plpgsql AS $$
DECLARE
    identity CONSTANT text[] := ARRAY['idempotency_key', 'fencing_token', 'scheduled_time', 'attempt', 'job_id', 'job', 'tenant'];
    required text;
    checked  boolean;
    missing  text;
BEGIN
    checked := cronstream.check_keys('sql', payload, ARRAY['connection', 'statement', 'parameters']);
    FOREACH required IN ARRAY ARRAY['connection', 'statement'] LOOP
        IF (jsonb_typeof(payload -> required) = 'string' AND btrim(payload ->> required) <> '') IS NOT TRUE THEN
            RETURN cronstream.refuse(CASE WHEN payload ? required AND jsonb_typeof(payload) = 'object' THEN 'payload.' || required ELSE 'payload' END,
                format('needs a %s for handler sql', required), coalesce(payload -> required, payload)::text,
                '{"connection": "billing", "statement": "CALL close_day(%(scheduled_time)s)"}; the worker''s settings name its connections.');
        END IF;
    END LOOP;
    checked := cronstream.check_object(payload, 'parameters', '{"parameters": {"month": "2030-01"}}');
    SELECT parts[1] INTO missing FROM regexp_matches(payload ->> 'statement', '%\((\w+)\)s', 'g') AS placeholders (parts)
    WHERE parts[1] <> ALL (identity) AND NOT coalesce(payload -> 'parameters', '{}') ? parts[1] LIMIT 1;
    IF missing IS NOT NULL THEN
        RETURN cronstream.refuse('payload.statement', format('names a parameter that is not there: %s', to_json(left(missing, 40))),
            (payload -> 'statement')::text, coalesce('Did you mean ' || cronstream.nearest(missing, identity) || '? ', '')
            || 'Put it into parameters; always there are ' || array_to_string(identity, ', ') || '.');
    END IF;
    RETURN true;
END $$;

CREATE FUNCTION cronstream.check_python(payload jsonb) RETURNS boolean
    LANGUAGE plpgsql AS $$
DECLARE
    checked boolean;
BEGIN
    checked := cronstream.check_keys('python', payload, ARRAY['entry_point', 'arguments', 'limits', 'final_exit_codes']);
    IF (jsonb_typeof(payload -> 'entry_point') = 'string'
        AND payload ->> 'entry_point' ~ '^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*:[A-Za-z_][A-Za-z0-9_]*$') IS NOT TRUE THEN
        RETURN cronstream.refuse(CASE WHEN payload ? 'entry_point' AND jsonb_typeof(payload) = 'object' THEN 'payload.entry_point' ELSE 'payload' END,
            'needs an entry_point, package.module:function, for handler python',
            coalesce(payload -> 'entry_point', payload)::text, '{"entry_point": "reports.monthly:close"}');
    END IF;
    checked := cronstream.check_object(payload, 'arguments', '{"arguments": {"month": "2030-01"}}');
    checked := cronstream.check_program(payload);
    RETURN true;
END $$;

-- What a handler needs of its payload: true, or raises through refuse().
CREATE FUNCTION cronstream.check_payload(handler text, payload jsonb) RETURNS boolean
    LANGUAGE plpgsql AS $$
BEGIN
    IF octet_length(payload::text) > 65536 THEN
        RETURN cronstream.refuse('payload', format('has %s bytes as text, more than 65536', octet_length(payload::text)),
            payload::text, 'Keep the data elsewhere and put a reference to it into the payload.');
    END IF;
    -- workers read no JSON that lies deeper than a thousand levels, and the topic's commands none deeper than this
    IF octet_length(payload::text) > 400
        AND jsonb_path_exists(payload, 'strict $.**{200} ? (@.type() == "object" || @.type() == "array")') THEN
        RETURN cronstream.refuse('payload', 'is nested more than 200 deep', payload::text, 'Send what lies so deep as text.');
    END IF;
    CASE handler
        WHEN 'http' THEN RETURN cronstream.check_http(payload);
        WHEN 'command' THEN RETURN cronstream.check_command(payload);
        WHEN 'kafka' THEN RETURN cronstream.check_kafka(payload);
        WHEN 'sql' THEN RETURN cronstream.check_sql(payload);
        WHEN 'python' THEN RETURN cronstream.check_python(payload);
        ELSE RETURN true;
    END CASE;
END $$;

-- ---- what a worker must allow ----------------------------------------------------------------------

-- The setting without which no worker runs a handler; NULL for those that every worker runs.
CREATE FUNCTION cronstream.handler_setting(handler text) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN CASE handler WHEN 'command' THEN 'CRONSTREAM_COMMAND_ENABLED=true'
                        WHEN 'python' THEN 'CRONSTREAM_PYTHON_MODULES with its module'
                        WHEN 'sql' THEN 'CRONSTREAM_SQL_CONNECTIONS with its connection' END;

-- AFTER each statement: a NOTICE of each handler that is off unless a worker allows it, once a session. Of the first
-- hundred rows, as of all notices.
CREATE FUNCTION cronstream.tell_handlers() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on AS $$
DECLARE
    told text := coalesce(current_setting('cronstream.told_handlers', true), '');
    met  text;
BEGIN
    IF current_setting('client_min_messages') IN ('warning', 'error') THEN
        RETURN NULL;
    END IF;
    FOR met IN SELECT DISTINCT n.handler FROM (SELECT handler FROM new_rows LIMIT 100) AS n
               WHERE cronstream.handler_setting(n.handler) IS NOT NULL ORDER BY n.handler LOOP
        CONTINUE WHEN met = ANY (string_to_array(told, ','));
        told := set_config('cronstream.told_handlers', concat_ws(',', nullif(told, ''), met), false);
        RAISE NOTICE USING
            MESSAGE = format('handler %s runs only on workers with %s: on others its runs fail for good', met, cronstream.handler_setting(met)),
            SCHEMA = 'cronstream', TABLE = 'job_definitions', COLUMN = 'handler';
    END LOOP;
    RETURN NULL;
END $$;

CREATE TRIGGER tell_insert_handlers AFTER INSERT ON cronstream.job_definitions
    REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION cronstream.tell_handlers();
CREATE TRIGGER tell_update_handlers AFTER UPDATE ON cronstream.job_definitions
    REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION cronstream.tell_handlers();
