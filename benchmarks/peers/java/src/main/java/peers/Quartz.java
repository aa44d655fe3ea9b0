package peers;

import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.Statement;
import java.util.Date;
import java.util.Properties;
import org.quartz.Job;
import org.quartz.JobBuilder;
import org.quartz.JobExecutionContext;
import org.quartz.Scheduler;
import org.quartz.SimpleScheduleBuilder;
import org.quartz.TriggerBuilder;
import org.quartz.impl.StdSchedulerFactory;

/** Quartz with its JDBC store, clustered as it must be for failover, acquiring triggers in batches. */
final class Quartz {
    private Quartz() {}

    /** Says when it ran. */
    public static final class Noted implements Job {
        @Override
        public void execute(JobExecutionContext context) {
            Fires.fired();
        }
    }

    static void run(int size, long at, long until) throws Exception {
        try (Connection connection = DriverManager.getConnection(
                System.getenv("JDBC_URL"), "cronstream", System.getenv("PGPASSWORD"));
            Statement statement = connection.createStatement();
            InputStream tables =
                Scheduler.class.getResourceAsStream("/org/quartz/impl/jdbcjobstore/tables_postgres.sql")) {
            String text = new String(tables.readAllBytes(), StandardCharsets.UTF_8);
            statement.execute(text.replaceAll("(?m)^\\s*--.*$", "").replace("COMMIT;", ""));
            Scheduler scheduler = new StdSchedulerFactory(properties()).getScheduler();
            scheduler.scheduleJob(
                JobBuilder.newJob(Noted.class).withIdentity("job-1").usingJobData("pad", "x".repeat(256)).build(),
                TriggerBuilder.newTrigger().withIdentity("job-1").startAt(new Date(at))
                    .withSchedule(SimpleScheduleBuilder.repeatHourlyForever()
                        .withMisfireHandlingInstructionFireNow()).build());
            copy(statement, "qrtz_job_details", "job_name", "job_name", size);
            copy(statement, "qrtz_triggers", "trigger_name", "trigger_name, job_name", size);
            copy(statement, "qrtz_simple_triggers", "trigger_name", "trigger_name", size);
            statement.execute("VACUUM ANALYZE");
            scheduler.start();
            Fires.startedBefore(at);
            Fires.await(size, until);
        }
    }

    /** Rows 2 to size, like the first but for their names. */
    private static void copy(Statement statement, String table, String key, String names, int size) throws Exception {
        StringBuilder columns = new StringBuilder();
        StringBuilder values = new StringBuilder();
        try (var found = statement.executeQuery(
            "SELECT column_name FROM information_schema.columns WHERE table_name = '" + table + "' ORDER BY ordinal_position")) {
            while (found.next()) {
                String column = found.getString(1);
                columns.append(columns.isEmpty() ? "" : ", ").append(column);
                boolean named = (", " + names + ",").contains(", " + column + ",");
                values.append(values.isEmpty() ? "" : ", ").append(named ? "'job-' || i" : column);
            }
        }
        statement.execute("INSERT INTO %s (%s) SELECT %s FROM %s, generate_series(2, %d) i WHERE %s = 'job-1'"
            .formatted(table, columns, values, table, size, key));
    }

    private static Properties properties() {
        Properties values = new Properties();
        values.put("org.quartz.scheduler.instanceName", "bench");
        values.put("org.quartz.scheduler.instanceId", "AUTO");
        values.put("org.quartz.scheduler.batchTriggerAcquisitionMaxCount", "100");
        values.put("org.quartz.threadPool.threadCount", "20");
        values.put("org.quartz.jobStore.class", "org.quartz.impl.jdbcjobstore.JobStoreTX");
        values.put("org.quartz.jobStore.driverDelegateClass", "org.quartz.impl.jdbcjobstore.PostgreSQLDelegate");
        values.put("org.quartz.jobStore.isClustered", "true");
        values.put("org.quartz.jobStore.acquireTriggersWithinLock", "true");
        values.put("org.quartz.jobStore.misfireThreshold", "3600000");
        values.put("org.quartz.jobStore.dataSource", "bench");
        values.put("org.quartz.dataSource.bench.provider", "hikaricp");
        values.put("org.quartz.dataSource.bench.driver", "org.postgresql.Driver");
        values.put("org.quartz.dataSource.bench.URL", System.getenv("JDBC_URL"));
        values.put("org.quartz.dataSource.bench.user", "cronstream");
        values.put("org.quartz.dataSource.bench.password", System.getenv("PGPASSWORD"));
        values.put("org.quartz.dataSource.bench.maxConnections", "30");
        return values;
    }
}
