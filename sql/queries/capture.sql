-- name: slot
-- The state of the capture's replication slot; no row when it does not exist. Its process is at work unless it
-- waits for WAL to read, or for Connect to take what it has. Another role's process may not be looked at: not at work.
SELECT slot.active, coalesce(slot.wal_status, 'reserved') AS wal_status,
       pg_wal_lsn_diff(pg_current_wal_lsn(), slot.confirmed_flush_lsn)::bigint AS behind_bytes,
       coalesce(pg_wal_lsn_diff(slot.confirmed_flush_lsn, '0/0'), 0)::bigint AS confirmed,
       coalesce(sender.state = 'active' AND coalesce(sender.wait_event, '') NOT IN
                ('WalSenderMain', 'WalSenderWaitForWAL', 'WalSenderWaitForWal', 'WalSenderWriteData'), false) AS decoding
FROM pg_replication_slots slot
LEFT JOIN pg_stat_activity sender ON sender.pid = slot.active_pid
WHERE slot.slot_name = %(slot)s AND slot.slot_type = 'logical';

-- name: now
-- The database's clock in microseconds.
SELECT cronstream.us(clock_timestamp());

-- name: drop_slot
-- Drop the slot if it is there and nobody reads it; a row when there was one.
SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = %(slot)s AND NOT active;
