import java.nio.ByteBuffer;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Encoder;
import org.apache.spark.sql.Encoders;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.streaming.OutputMode;
import org.apache.spark.sql.streaming.StatefulProcessor;
import org.apache.spark.sql.streaming.TTLConfig;
import org.apache.spark.sql.streaming.TimeMode;
import org.apache.spark.sql.streaming.TimerValues;
import org.apache.spark.sql.streaming.ValueState;
import scala.Tuple2;
import scala.collection.Iterator;
import scala.collection.Iterator$;

/**
 * Spark's own state: a count by key as a {@code transformWithState}.
 *
 * <p>In the JVM and not in Python, whose processors ask the JVM for each key over a socket: this is
 * the fastest that Spark offers.
 */
public final class SparkCount {
  /** From rows of one binary column {@code key} to {@code key} and {@code value}, the new count. */
  public static Dataset<Row> count(Dataset<Row> rows) {
    Encoder<byte[]> bytes = Encoders.BINARY();
    return rows.groupBy("key")
        .as(bytes, bytes)
        .transformWithState(
            new Counter(), TimeMode.None(), OutputMode.Update(), Encoders.tuple(bytes, bytes))
        .toDF("key", "value");
  }

  private static final class Counter
      extends StatefulProcessor<byte[], byte[], Tuple2<byte[], byte[]>> {
    private transient ValueState<Long> count;

    @Override
    public void init(OutputMode mode, TimeMode time) {
      count = getHandle().getValueState("count", Encoders.LONG(), TTLConfig.NONE());
    }

    @Override
    public Iterator<Tuple2<byte[], byte[]>> handleInputRows(
        byte[] key, Iterator<byte[]> rows, TimerValues timers) {
      Long before = count.get();
      long now = (before == null ? 0 : before) + rows.size();
      count.update(now);
      byte[] value = ByteBuffer.allocate(Long.BYTES).putLong(now).array();
      return Iterator$.MODULE$.single(new Tuple2<>(key, value));
    }
  }
}
