-- Edits of definitions on request: upsert, one-shot, patch, pause, resume and delete. Each is a request (0009_requests.sql)
-- that is done when its transaction commits: the leader has nothing to publish for it, and learns of it as of any edit.

-- The columns that a definition may set, tenant and name aside.
CREATE FUNCTION cronstream.definition_columns() RETURNS text[]
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN ARRAY['cron', 'every', 'run_at', 'anchor', 'timezone', 'handler', 'payload', 'starts_at', 'ends_at', 'enabled',
                 'misfire_policy', 'misfire_grace', 'catch_up_limit', 'overlap_policy', 'dst_gap', 'dst_overlap', 'spread_seconds',
                 'max_attempts', 'backoff_seconds', 'backoff_factor', 'max_backoff', 'jitter', 'timeout_seconds'];

-- A JSON object as a definition's columns; names the key that is unknown or cannot be read. `parameter` is where it stood.
CREATE FUNCTION cronstream.read_definition(definition jsonb, parameter text DEFAULT 'definition') RETURNS cronstream.job_definitions
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on AS $$
DECLARE
    known CONSTANT text[] := cronstream.definition_columns();
    key   text;
    near  text;
    row   cronstream.job_definitions;
    checked boolean;
    why   text;
BEGIN
    IF jsonb_typeof(definition) IS DISTINCT FROM 'object' THEN
        checked := cronstream.refuse(parameter, 'must be a JSON object', definition::text, 'For example {"cron": "*/5 * * * *", "handler": "log"}.');
    ELSIF definition - known <> '{}' THEN
        SELECT k INTO key FROM jsonb_object_keys(definition - known) AS k ORDER BY k LIMIT 1;
        near := cronstream.nearest(key, known);
        checked := cronstream.refuse(coalesce(nullif(left(key, 40), ''), '""'), 'is no column of a definition', definition ->> key,
            CASE WHEN key IN ('tenant', 'name', 'id') THEN format('%s stands beside the %s, not in it. ', key, parameter) ELSE '' END
            || coalesce('Did you mean ' || near || '? ', '') || 'Known: ' || array_to_string(known, ', ') || '.');
    END IF;
    BEGIN
        RETURN jsonb_populate_record(NULL::cronstream.job_definitions, definition);
    EXCEPTION WHEN data_exception THEN
        NULL;  -- of which key, is found below
    END;
    FOR key IN SELECT jsonb_object_keys(definition) LOOP
        BEGIN
            row := jsonb_populate_record(NULL::cronstream.job_definitions, jsonb_build_object(key, definition -> key));
            CONTINUE;
        EXCEPTION WHEN data_exception THEN
            why := left(SQLERRM, 200);
            IF SQLSTATE IN ('22003', '22008', '22015') THEN  -- too large for any row
                checked := cronstream.explain_bounds(row, key, definition ->> key);
            END IF;
        END;
        checked := cronstream.refuse(key, 'cannot be read: ' || why, definition ->> key,
            'Instants are written with their offset (''2026-01-01T00:00:00Z''), intervals as ''90 seconds'', numbers plainly.');
    END LOOP;
    RETURN row;
END $$;

-- Insert or replace a definition: what is left out takes its default, but for enabled, which stays as it is. A one-shot
-- replaces no recurring job: whoever asks for one run does not mean to end a schedule.
CREATE FUNCTION cronstream.put_definition(kind text, tenant text, name text, definition jsonb, id text) RETURNS jsonb
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on AS $$
DECLARE
    request record;
    read    cronstream.job_definitions;
    given   text[];
    found   record;
    stored  record;
    checked boolean;
BEGIN
    request := cronstream.begin_request(kind, tenant, name, id);
    IF request.answer IS NOT NULL THEN
        RETURN request.answer;
    END IF;
    read := cronstream.read_definition(definition);
    given := ARRAY(SELECT jsonb_object_keys(definition));
    -- What is there is read under the row's lock, so that what is refused and answered is true of the row that is replaced.
    -- Where another transaction makes the row, or deletes it, between two statements, it is looked for again.
    LOOP
        SELECT d.job_id, d.revision, coalesce('cron ' || quote_literal(left(d.cron, 60)), 'every ' || d.every) AS recurs INTO found
        FROM cronstream.job_definitions d WHERE d.tenant = put_definition.tenant AND d.name = put_definition.name FOR UPDATE;
        IF found.job_id IS NULL THEN
            EXECUTE format(
                'INSERT INTO cronstream.job_definitions (tenant, name%s) VALUES ($1, $2%s) ON CONFLICT (tenant, name) DO NOTHING RETURNING job_id, revision',
                (SELECT string_agg(format(', %I', k), '') FROM unnest(given) AS k),
                (SELECT string_agg(format(', ($3).%I', k), '') FROM unnest(given) AS k))
            INTO stored USING tenant, name, read;
        ELSIF kind = 'one-shot' AND found.recurs IS NOT NULL THEN
            checked := cronstream.refuse('name', 'belongs to a recurring job', name,
                'Choose another name, or replace that job by cronstream.upsert with run_at. cronstream.run_now runs it once, now.', found.recurs);
        ELSE
            EXECUTE format('UPDATE cronstream.job_definitions SET %s WHERE job_id = $1 RETURNING job_id, revision',
                (SELECT string_agg(format(CASE WHEN k = ANY (given) THEN '%I = ($2).%1$I' ELSE '%I = DEFAULT' END, k), ', ')
                 FROM unnest(cronstream.definition_columns()) AS k WHERE k <> 'enabled' OR k = ANY (given)))
            INTO stored USING found.job_id, read;
        END IF;
        EXIT WHEN stored.job_id IS NOT NULL;
    END LOOP;
    RETURN cronstream.finish_request(request.number, 'done', stored.job_id, jsonb_build_object('job_id', stored.job_id,
        'revision', stored.revision, 'created', found.job_id IS NULL, 'changed', found.revision IS DISTINCT FROM stored.revision));
END $$;

CREATE FUNCTION cronstream.upsert(tenant text, name text, definition jsonb, id text DEFAULT NULL) RETURNS jsonb
    LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on
    RETURN cronstream.put_definition('upsert', tenant, name, definition, id);

-- A job that runs once, at an instant. It replaces a single time of the same name.
CREATE FUNCTION cronstream.one_shot(tenant text, name text, run_at timestamptz, handler text, payload jsonb DEFAULT '{}', id text DEFAULT NULL) RETURNS jsonb
    LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on
    RETURN cronstream.put_definition('one-shot', tenant, name,
        jsonb_build_object('run_at', run_at, 'handler', handler, 'payload', payload), id);
CREATE FUNCTION cronstream.one_shot(tenant text, name text, run_at text, handler text, payload jsonb DEFAULT '{}', id text DEFAULT NULL) RETURNS jsonb
    LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on
    RETURN cronstream.one_shot(tenant, name, cronstream.read_instant('run_at', run_at), handler, payload, id);

-- Change some columns of a definition; null clears one.
CREATE FUNCTION cronstream.patch(tenant text, name text, changes jsonb, id text DEFAULT NULL) RETURNS jsonb
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on AS $$
DECLARE
    request  record;
    read     cronstream.job_definitions;
    found_id bigint;
    was      bigint;
    becomes  bigint;
    checked  boolean;
BEGIN
    request := cronstream.begin_request('patch', tenant, name, id);
    IF request.answer IS NOT NULL THEN
        RETURN request.answer;
    END IF;
    found_id := cronstream.find_job(tenant, name, locked => true);
    SELECT d.revision INTO was FROM cronstream.job_definitions d WHERE d.job_id = found_id;
    read := cronstream.read_definition(changes, 'changes');
    IF changes = '{}' THEN
        checked := cronstream.refuse('changes', 'names no column', changes::text, 'Name what to change: {"every": "5 minutes"}.');
    END IF;
    EXECUTE format('UPDATE cronstream.job_definitions SET %s WHERE job_id = $1 RETURNING revision',
        (SELECT string_agg(format('%I = ($2).%1$I', k), ', ') FROM jsonb_object_keys(changes) AS k))
    INTO becomes USING found_id, read;
    RETURN cronstream.finish_request(request.number, 'done', found_id,
        jsonb_build_object('job_id', found_id, 'revision', becomes, 'changed', was IS DISTINCT FROM becomes));
END $$;

CREATE FUNCTION cronstream.set_enabled(kind text, tenant text, name text, enabled boolean, id text) RETURNS jsonb
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on AS $$
DECLARE
    request  record;
    found_id bigint;
BEGIN
    request := cronstream.begin_request(kind, tenant, name, id);
    IF request.answer IS NOT NULL THEN
        RETURN request.answer;
    END IF;
    found_id := cronstream.find_job(tenant, name, locked => true);
    UPDATE cronstream.job_definitions d SET enabled = set_enabled.enabled WHERE d.job_id = found_id AND d.enabled <> set_enabled.enabled;
    RETURN cronstream.finish_request(request.number, 'done', found_id, jsonb_build_object('job_id', found_id, 'changed', FOUND));
END $$;

CREATE FUNCTION cronstream.pause(tenant text, name text, id text DEFAULT NULL) RETURNS jsonb
    LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on RETURN cronstream.set_enabled('pause', tenant, name, false, id);
CREATE FUNCTION cronstream.resume(tenant text, name text, id text DEFAULT NULL) RETURNS jsonb
    LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on RETURN cronstream.set_enabled('resume', tenant, name, true, id);

CREATE FUNCTION cronstream.delete(tenant text, name text, id text DEFAULT NULL) RETURNS jsonb
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on AS $$
DECLARE
    request  record;
    found_id bigint;
BEGIN
    request := cronstream.begin_request('delete', tenant, name, id);
    IF request.answer IS NOT NULL THEN
        RETURN request.answer;
    END IF;
    found_id := cronstream.find_job(tenant, name, locked => true);
    DELETE FROM cronstream.job_definitions d WHERE d.job_id = found_id;
    RETURN cronstream.finish_request(request.number, 'done', found_id, jsonb_build_object('job_id', found_id));
END $$;
