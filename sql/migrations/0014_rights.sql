-- Who may do what. A function is its owner's alone (sql/migrate.py takes from PUBLIC what Postgres gives it with every new
-- one): the rights of a definer, a trigger function's most of all, are in the hands of whoever may execute it. Roles get by
-- name what they call, and what that calls with their rights.

-- The functions of these names, whatever their parameters, become that role's to execute.
CREATE FUNCTION cronstream.grant_functions(role_name name, names text[]) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on AS $$
BEGIN
    EXECUTE (SELECT format('GRANT EXECUTE ON FUNCTION %s TO %I', string_agg(oid::regprocedure::text, ', '), role_name)
             FROM pg_proc WHERE pronamespace = 'cronstream'::regnamespace AND proname = ANY (names));
END $$;

-- What a role needs that defines jobs, asks for runs and nothing else: rows of definitions, and the doors. The trigger functions
-- run as the owner, so no right on job_changes is needed.
-- job_id, revision and the times of creation and edit cannot be written.
CREATE FUNCTION cronstream.grant_definitions(role_name name) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on AS $$
DECLARE
    columns text;
BEGIN
    SELECT string_agg(quote_ident(attname), ', ' ORDER BY attnum) INTO columns FROM pg_attribute
    WHERE attrelid = 'cronstream.job_definitions'::regclass AND attnum > 0 AND NOT attisdropped
      AND attname NOT IN ('job_id', 'revision', 'created_at', 'updated_at');
    EXECUTE format('GRANT USAGE ON SCHEMA cronstream TO %I', role_name);
    EXECUTE format('GRANT SELECT ON cronstream.zones, cronstream.requests TO %I', role_name);
    EXECUTE format('GRANT SELECT, DELETE, INSERT (%s), UPDATE (%1$s) ON cronstream.job_definitions TO %2$I', columns, role_name);
    PERFORM cronstream.grant_functions(role_name, ARRAY[
        -- the doors: each is SECURITY DEFINER
        'run_now', 'backfill', 'redrive', 'upsert', 'one_shot', 'patch', 'pause', 'resume', 'delete', 'refuse_command',
        'apply_command', 'the_job', 'unseen',  -- of commands: it calls the doors as the caller, and what names a job in an error
        'zone_names']);                        -- of the view zones
END $$;

-- What a role needs that looks at how runs go, of all tenants: it reads history, status and requests, no definitions
-- and no dead letters, which have payloads in them, and changes nothing. Partitions need no right of their own.
CREATE FUNCTION cronstream.grant_history(role_name name) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on AS $$
BEGIN
    EXECUTE format('GRANT USAGE ON SCHEMA cronstream TO %I', role_name);
    EXECUTE format('GRANT SELECT ON cronstream.job_runs, cronstream.job_status, cronstream.running_attempts, '
                   'cronstream.requests, cronstream.history_exports, cronstream.job_runs_tables TO %I', role_name);
    PERFORM cronstream.grant_functions(role_name, ARRAY['job_runs_partition']);
END $$;

-- What a role needs to look at everything that the command line shows, and to change nothing: the above, definitions and
-- their schedules, edits and requests that are open, and dead letters, whose values hold payloads.
CREATE FUNCTION cronstream.grant_viewing(role_name name) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on AS $$
BEGIN
    PERFORM cronstream.grant_history(role_name);
    EXECUTE format('GRANT SELECT ON cronstream.job_definitions, cronstream.schedules, cronstream.job_changes, cronstream.open_requests, '
                   'cronstream.dead_letters, cronstream.zones, cronstream.schema_migrations, '
                   'cronstream.coordinator_epoch, cronstream.job_rules TO %I', role_name);  -- the last two: doctor
    PERFORM cronstream.grant_functions(role_name, ARRAY['zone_names', 'us']);
END $$;
