-- Commands of the topic: what each says is done by the function of the same name, and its answer is stored.

-- Store that a command was refused, or find the answer of the same id. Where the id is another request's, that one's
-- answer stays: this refusal is told and not stored. Nor is one of a job that cannot be, by its tenant or name.
CREATE FUNCTION cronstream.refuse_command(kind text, tenant text, name text, id text, error jsonb) RETURNS jsonb
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on AS $$
DECLARE
    unstored CONSTANT jsonb := jsonb_build_object('id', id, 'command', kind, 'tenant', tenant, 'name', name, 'accepted', false, 'error', error);
    request  record;
    field    text;
BEGIN
    BEGIN
        request := cronstream.begin_request(kind, tenant, name, id);
    EXCEPTION
        WHEN unique_violation THEN
            RETURN unstored;
        WHEN invalid_parameter_value THEN
            GET STACKED DIAGNOSTICS field = COLUMN_NAME;
            IF field = 'id' THEN
                RAISE;
            END IF;
            RETURN unstored;
    END;
    IF request.answer IS NOT NULL THEN
        RETURN request.answer;
    END IF;
    RETURN cronstream.finish_request(request.number, 'refused', NULL, jsonb_build_object('error', error));
END $$;

-- Do what a command says, as its function above does, and store the answer; what its function refuses is
-- stored as refused. Raises only what would be different a moment later, and bugs.
CREATE FUNCTION cronstream.apply_command(command jsonb) RETURNS jsonb
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on AS $$
DECLARE
    kind   CONSTANT text := command ->> 'command';
    tenant CONSTANT text := coalesce(command ->> 'tenant', 'default');
    name   CONSTANT text := command ->> 'name';
    id     CONSTANT text := command ->> 'id';
    code    text;
    message text;
    detail  text;
    hint    text;
    field   text;
    job     text;
BEGIN
    CASE kind
        WHEN 'run-now' THEN RETURN cronstream.run_now(tenant, name, id);
        WHEN 'backfill' THEN RETURN cronstream.backfill(tenant, name, command ->> 'begins', command ->> 'ends', id);
        WHEN 'upsert' THEN RETURN cronstream.upsert(tenant, name, command -> 'definition', id);
        WHEN 'patch' THEN RETURN cronstream.patch(tenant, name, command -> 'changes', id);
        WHEN 'delete' THEN RETURN cronstream.delete(tenant, name, id);
        WHEN 'pause' THEN RETURN cronstream.pause(tenant, name, id);
        WHEN 'resume' THEN RETURN cronstream.resume(tenant, name, id);
        WHEN 'one-shot' THEN RETURN cronstream.one_shot(tenant, name, command ->> 'run_at', command ->> 'handler',
                                                        coalesce(command -> 'payload', '{}'), id);
    END CASE;
EXCEPTION
    WHEN lock_not_available THEN
        RAISE;  -- of the class that is named below, and would be different a moment later
    WHEN data_exception OR integrity_constraint_violation OR no_data_found OR insufficient_privilege OR object_not_in_prerequisite_state THEN
        GET STACKED DIAGNOSTICS code = RETURNED_SQLSTATE, message = MESSAGE_TEXT, detail = PG_EXCEPTION_DETAIL,
            hint = PG_EXCEPTION_HINT, field = COLUMN_NAME;
        -- the answer says whose it is as it is
        job := cronstream.the_job(tenant, name);
        IF right(detail, length(job)) = job THEN
            detail := rtrim(left(detail, -length(job)));
        END IF;
        RETURN cronstream.refuse_command(kind, tenant, name, id, jsonb_strip_nulls(jsonb_build_object(
            'code', CASE WHEN code = 'P0002' THEN 'no_such_job' WHEN code = '42501' THEN 'forbidden'
                         WHEN code = '23505' THEN 'conflict' ELSE 'invalid' END,
            'message', message, 'detail', nullif(detail, ''), 'field', coalesce(nullif(field, ''), 'command'),
            'hint', coalesce(nullif(hint, ''), CASE code
                WHEN '42501' THEN 'Let the role of the commands process do it: cronstream.grant_definitions gives what it needs.'
                ELSE 'Mend what the database names, then send the command under a new id.' END))));
END $$;
