-- A row that was written around the triggers can hold infinity or a span of ages. Read as a number it is
-- bounded, so that it makes one job invalid and not every query that meets it.

CREATE OR REPLACE FUNCTION cronstream.us(instant timestamptz) RETURNS bigint
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    RETURN least(greatest(extract(epoch FROM instant) * 1000000, -4611686018427387904), 4611686018427387904)::bigint;

CREATE OR REPLACE FUNCTION cronstream.us(span interval) RETURNS bigint
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    RETURN least(greatest(extract(epoch FROM span) * 1000000, -4611686018427387904), 4611686018427387904)::bigint;

-- Who etcd is: a key that the first leader left there. An etcd without it was wiped, whatever its revisions say.
ALTER TABLE cronstream.coordinator_epoch ADD COLUMN etcd_identity text;
