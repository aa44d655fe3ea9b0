-- Who holds the locks that a connection waits for.

-- name: holders
-- Who stands between a backend and its lock, nearest first: a statement that queues there has its own before it.
WITH RECURSIVE before (pid, steps) AS (
    SELECT unnest(pg_blocking_pids(%(pid)s)), 1
    UNION
    SELECT unnest(pg_blocking_pids(before.pid)), steps + 1 FROM before WHERE steps < 3)
SELECT pid, a.usename, a.application_name, a.xact_start
FROM (SELECT pid, max(steps) AS steps FROM before GROUP BY pid) AS found LEFT JOIN pg_stat_activity a USING (pid)
ORDER BY steps, a.xact_start DESC NULLS FIRST
LIMIT 4
