-- name: slot
-- The state of the capture's replication slot; no row when it does not exist.
SELECT active, coalesce(wal_status, 'reserved') AS wal_status,
       pg_wal_lsn_diff(pg_current_wal_lsn(), confirmed_flush_lsn)::bigint AS behind_bytes
FROM pg_replication_slots
WHERE slot_name = %(slot)s AND slot_type = 'logical';

-- name: now
-- The database's clock in microseconds.
SELECT cronstream.us(clock_timestamp());

-- name: drop_slot
-- Drop the slot if it is there and nobody reads it; a row when there was one.
SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = %(slot)s AND NOT active;
