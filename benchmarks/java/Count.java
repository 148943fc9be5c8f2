import com.dynatrace.hash4j.hashing.HashValue128;
import com.dynatrace.hash4j.hashing.Hashing;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.Properties;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.CloseOptions;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StoreQueryParameters;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.processor.StateRestoreListener;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.QueryableStoreTypes;
import org.apache.kafka.streams.state.ValueAndTimestamp;
import org.apache.kafka.streams.state.WindowStore;

/**
 * The peer of the benchmarks: Kafka Streams' own count by key, windowed or not.
 *
 * <p>Arguments are key=value: topic, store, window.ms, retention.ms are ours, the rest are
 * StreamsConfig's. Says what happens on standard output, one JSON object a line; takes "digest" and
 * "stop" on standard input, and ends when that is closed.
 */
public final class Count {
  private static long high, low, entries, sum;

  public static void main(String[] arguments) throws Exception {
    Properties given = new Properties();
    for (String argument : arguments) {
      String[] pair = argument.split("=", 2);
      given.put(pair[0], pair[1]);
    }
    String topic = (String) given.remove("topic");
    String store = (String) given.remove("store");
    long window = Long.parseLong((String) given.remove("window.ms"));
    long retention = Long.parseLong((String) given.remove("retention.ms"));

    KafkaStreams streams = new KafkaStreams(topology(topic, store, window, retention).build(), given);
    streams.setStateListener((now, before) -> say("{\"event\":\"state\",\"state\":\"" + now + "\"}"));
    streams.setGlobalStateRestoreListener(new Restores());
    streams.setUncaughtExceptionHandler(
        error -> {
          error.printStackTrace();
          return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
        });
    streams.start();
    BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
    for (String line = in.readLine(); line != null && !line.equals("stop"); line = in.readLine()) {
      digest(streams, store, window > 0);
      String sums = String.format("\"digest\":\"%016x%016x/%d\",\"total\":%d", high, low, entries, sum);
      say("{\"event\":\"digest\"," + sums + ",\"entries\":" + entries + "}");
    }
    streams.close(
        CloseOptions.groupMembershipOperation(CloseOptions.GroupMembershipOperation.LEAVE_GROUP)
            .withTimeout(Duration.ofSeconds(30)));
  }

  private static StreamsBuilder topology(String topic, String store, long window, long retention) {
    StreamsBuilder builder = new StreamsBuilder();
    var bytes = Serdes.ByteArray();
    var grouped =
        builder.stream(topic, Consumed.with(bytes, bytes)).groupByKey(Grouped.with(bytes, bytes));
    if (window == 0) {
      grouped.count(
          Materialized.<byte[], Long, KeyValueStore<Bytes, byte[]>>as(store)
              .withKeySerde(bytes)
              .withValueSerde(Serdes.Long()));
    } else {
      // Nothing is late for either side: both drop by clocks of their own.
      Duration grace = Duration.ofMillis(retention - window);
      grouped
          .windowedBy(TimeWindows.ofSizeAndGrace(Duration.ofMillis(window), grace))
          .count(
              Materialized.<byte[], Long, WindowStore<Bytes, byte[]>>as(store)
                  .withKeySerde(bytes)
                  .withValueSerde(Serdes.Long())
                  .withRetention(Duration.ofMillis(retention)));
    }
    return builder;
  }

  /** Holdfast's digest: sum modulo 2^128 of xxh3_128 over length-prefixed stored key and value. */
  private static void digest(KafkaStreams streams, String store, boolean windowed) {
    high = low = entries = sum = 0;
    if (windowed) {
      var type = QueryableStoreTypes.<byte[], Long>timestampedWindowStore();
      try (var all = streams.store(StoreQueryParameters.fromNameAndType(store, type)).all()) {
        while (all.hasNext()) {
          var entry = all.next();
          byte[] key = entry.key.key();
          ByteBuffer composite = ByteBuffer.allocate(key.length + 12);
          composite.put(key).putLong(entry.key.window().start()).putInt(0);
          add(composite.array(), entry.value);
        }
      }
    } else {
      var type = QueryableStoreTypes.<byte[], Long>timestampedKeyValueStore();
      try (var all = streams.store(StoreQueryParameters.fromNameAndType(store, type)).all()) {
        while (all.hasNext()) {
          var entry = all.next();
          add(entry.key, entry.value);
        }
      }
    }
  }

  private static void add(byte[] key, ValueAndTimestamp<Long> value) {
    ByteBuffer entry = ByteBuffer.allocate(4 + key.length + 4 + 16);
    entry.putInt(key.length).put(key).putInt(16).putLong(value.timestamp()).putLong(value.value());
    HashValue128 hash = Hashing.xxh3_128().hashBytesTo128Bits(entry.array());
    low += hash.getLeastSignificantBits();
    boolean carry = Long.compareUnsigned(low, hash.getLeastSignificantBits()) < 0;
    high += hash.getMostSignificantBits() + (carry ? 1 : 0);
    entries++;
    sum += value.value();
  }

  private static synchronized void say(String line) {
    System.out.println(line);
  }

  private static final class Restores implements StateRestoreListener {
    @Override
    public void onRestoreStart(TopicPartition partition, String store, long start, long end) {}

    @Override
    public void onBatchRestored(TopicPartition partition, String store, long end, long records) {}

    @Override
    public void onRestoreEnd(TopicPartition partition, String store, long records) {
      String where = "\"partition\":" + partition.partition() + ",\"records\":" + records;
      say("{\"event\":\"restored\"," + where + "}");
    }
  }
}
