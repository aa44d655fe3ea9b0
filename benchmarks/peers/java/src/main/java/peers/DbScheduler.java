package peers;

import com.github.kagkarlsson.scheduler.Scheduler;
import com.github.kagkarlsson.scheduler.task.CompletionHandler;
import com.github.kagkarlsson.scheduler.task.helper.CustomTask;
import com.github.kagkarlsson.scheduler.task.helper.Tasks;
import com.github.kagkarlsson.scheduler.task.schedule.Schedules;
import java.sql.Connection;
import java.sql.Statement;
import java.time.Duration;
import java.time.Instant;
import javax.sql.DataSource;

/** db-scheduler as its docs set it up for throughput: lock and fetch, twenty threads. */
final class DbScheduler {
    private DbScheduler() {}

    private static final String TABLE = """
        CREATE TABLE IF NOT EXISTS scheduled_tasks (
            task_name text NOT NULL, task_instance text NOT NULL, task_data bytea,
            execution_time timestamptz NOT NULL, picked boolean NOT NULL, picked_by text,
            last_success timestamptz, last_failure timestamptz, consecutive_failures int,
            last_heartbeat timestamptz, version bigint NOT NULL, priority smallint, state text,
            PRIMARY KEY (task_name, task_instance));
        CREATE INDEX IF NOT EXISTS execution_time_idx ON scheduled_tasks (execution_time);
        CREATE INDEX IF NOT EXISTS last_heartbeat_idx ON scheduled_tasks (last_heartbeat);
        CREATE INDEX IF NOT EXISTS priority_execution_time_idx ON scheduled_tasks (priority DESC, execution_time ASC);
        TRUNCATE scheduled_tasks""";

    static void run(DataSource source, int size, long at, long until) throws Exception {
        CustomTask<String> task = Tasks.custom("job", String.class)
            .execute((instance, context) -> {
                Fires.fired();
                return new CompletionHandler.OnCompleteReschedule<>(Schedules.fixedDelay(Duration.ofHours(1)));
            });
        Scheduler scheduler = Scheduler.create(source, task)
            .threads(20)
            .pollingInterval(Duration.ofMillis(100))
            .pollUsingLockAndFetch(0.5, 4.0)
            .build();
        try (Connection connection = source.getConnection(); Statement statement = connection.createStatement()) {
            statement.execute(TABLE);
            scheduler.schedule(task.instance("job-1", "x".repeat(256)), Instant.ofEpochMilli(at));
            statement.execute("""
                INSERT INTO scheduled_tasks SELECT task_name, 'job-' || i, task_data, execution_time, picked, picked_by,
                    last_success, last_failure, consecutive_failures, last_heartbeat, version, priority
                FROM scheduled_tasks, generate_series(2, %d) i WHERE task_instance = 'job-1'""".formatted(size));
            statement.execute("VACUUM ANALYZE scheduled_tasks");
        }
        scheduler.start();
        Fires.startedBefore(at);
        Fires.await(size, until);
    }
}
