package peers;

import java.io.PrintWriter;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.atomic.AtomicInteger;

/** When jobs began to run: microseconds since the epoch, in the order of their coming. */
final class Fires {
    private static final AtomicInteger COUNT = new AtomicInteger();
    private static long[] times = new long[0];

    private Fires() {}

    static void expect(int most) {
        times = new long[most];
    }

    /** The scheduler is up: that must be before the instant (milliseconds since the epoch), or it is not measured. */
    static void startedBefore(long atMillis) {
        if (System.currentTimeMillis() > atMillis) {
            throw new IllegalStateException("the set-up took too long");
        }
    }

    static void fired() {
        java.time.Instant now = java.time.Instant.now();
        int index = COUNT.getAndIncrement();
        if (index < times.length) {
            times[index] = now.getEpochSecond() * 1_000_000 + now.getNano() / 1_000;
        }
    }

    /** Wait until so many have fired, or until the deadline (milliseconds since the epoch). */
    static void await(int count, long untilMillis) throws InterruptedException {
        while (COUNT.get() < count && System.currentTimeMillis() < untilMillis) {
            Thread.sleep(20);
        }
    }

    static void write(Path file) throws java.io.IOException {
        try (PrintWriter out = new PrintWriter(Files.newBufferedWriter(file))) {
            for (int index = 0; index < Math.min(COUNT.get(), times.length); index++) {
                out.println(times[index]);
            }
        }
    }
}
