-- What the commands process asks: every operation is a function of the schema.

-- name: apply_command
-- Do what a command says and store the answer, or find that of its id.
SELECT cronstream.apply_command(%(command)s::jsonb)

-- name: refuse_command
-- Store that a command means nothing, or find the answer of its id.
SELECT cronstream.refuse_command(%(kind)s, %(tenant)s, %(name)s, %(id)s, %(error)s::jsonb)
