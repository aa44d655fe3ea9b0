package peers;

import com.zaxxer.hikari.HikariConfig;
import com.zaxxer.hikari.HikariDataSource;
import java.nio.file.Path;

/** KIND SIZE AT_MILLIS UNTIL_MILLIS FILE, with JDBC_URL and PGPASSWORD in the environment. */
public final class Main {
    private Main() {}

    public static void main(String[] arguments) throws Exception {
        int size = Integer.parseInt(arguments[1]);
        long at = Long.parseLong(arguments[2]);
        long until = Long.parseLong(arguments[3]);
        Fires.expect(size);
        if (arguments[0].equals("quartz")) {
            Quartz.run(size, at, until);
        } else {
            HikariConfig config = new HikariConfig();
            config.setJdbcUrl(System.getenv("JDBC_URL"));
            config.setUsername("cronstream");
            config.setPassword(System.getenv("PGPASSWORD"));
            config.setMaximumPoolSize(30);
            try (HikariDataSource source = new HikariDataSource(config)) {
                DbScheduler.run(source, size, at, until);
            }
        }
        Fires.write(Path.of(arguments[4]));
        System.exit(0);
    }
}
