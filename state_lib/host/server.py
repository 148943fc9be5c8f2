"""One state host: its tasks, and the two servers in front of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog
from pyarrow import ArrowException

from state_lib.changelog.log import KafkaLog
from state_lib.config import Settings
from state_lib.host.discovery import Discovery
from state_lib.host.metrics import HostMetrics
from state_lib.host.restore_records import RestoreRecords
from state_lib.host.retention import RetentionWatch
from state_lib.host.snapshots import SnapshotJobs
from state_lib.host.tasks import TaskManager
from state_lib.kafka import Kafka
from state_lib.restore.listener import Several
from state_lib.restore.options import RestoreOptions
from state_lib.restore.pool import WorkerPool
from state_lib.stack.ports import require_free
from state_lib.stores.rocksdb.options import RocksDBOptions
from state_lib.task import TaskContext

if TYPE_CHECKING:
    from state_lib.host.flight import FlightHost
    from state_lib.host.http import HttpServer

log = structlog.get_logger(__name__)


class StateHost:
    """A host as the settings describe it. Servers bind to the host's own address only.

    Args:
        settings: of this process.
        host_id: which of ``settings.hosts`` this is.

    Raises:
        ConfigurationError: no such host, a token file that cannot be read.
        PortInUse: naming the port.
    """

    def __init__(self, settings: Settings, host_id: str) -> None:
        self.address = settings.host_address(host_id)
        for port in (self.address.flight_port, self.address.http_port):
            require_free(self.address.host, port, "HOLDFAST_HOSTS")
        token = settings.read_token()
        self._metrics = metrics = HostMetrics()
        kafka = Kafka.of(settings)
        context = TaskContext(
            log=KafkaLog(kafka),
            host_id=host_id,
            state_dir=settings.home / "state" / host_id,
            options=RocksDBOptions(
                block_cache_bytes=int(settings.block_cache_bytes),
                write_budget_bytes=int(settings.write_buffer_bytes),
            ),
            listener=Several(metrics, RestoreRecords(kafka, host_id)),
            on_commit=metrics.on_commit,
            restore=RestoreOptions(
                mode=settings.restore_mode,
                snapshots_url=settings.snapshots_url,
                batch_size=settings.restore_batch_size,
            ),
            pool=WorkerPool(kafka, settings.restore_workers(self.address)),
        )
        context.state_dir.mkdir(parents=True, exist_ok=True)
        self.tasks = TaskManager(context, settings.host_addresses, settings.flush_interval_s)
        self._snapshots = SnapshotJobs(self.tasks, settings.snapshots_url, metrics.on_snapshot)
        self._retention = RetentionWatch(self.tasks)
        self._discovery = Discovery(self.tasks, self.address)
        self._token = token
        self._flight: FlightHost | None = None
        self._http: HttpServer | None = None

    def start(self) -> None:
        """Open remembered tasks in the background and answer requests.

        Raises:
            ModuleNotFoundError: of the host's extra; nothing is open.
            PortInUse: one was taken meanwhile; nothing is open.
        """
        try:
            self._start()
        except BaseException:
            self.stop()  # tasks that are open would keep others from opening them
            raise
        log.info(
            "host is up",
            host=self.address.id,
            flight=self.address.flight_url,
            http=self.address.http_url,
        )

    def _start(self) -> None:
        at = self.address
        self.tasks.start()  # first, so that requests do not find tasks missing
        self._discovery.start()
        # Half a second of imports, while the tasks that open wait for Kafka.
        from state_lib.host.flight import FlightHost  # noqa: PLC0415

        try:
            self._flight = FlightHost(self.tasks, at.flight_url, self._token, self._snapshots)
        except ArrowException:
            require_free(at.host, at.flight_port, "HOLDFAST_HOSTS")  # taken since it was looked at
            raise
        from state_lib.host.http import HttpServer  # noqa: PLC0415 - while drivers claim by now

        self._http = HttpServer(self.tasks, at, self._token, self._metrics)
        self._http.start()
        self._retention.start()

    def stop(self) -> None:
        """Answer no more, then flush and close every task. Restores that run are given up."""
        self.tasks.context.stopping.set()
        self._discovery.stop()
        if self._http is not None:
            self._http.stop()
        if self._flight is not None:
            self._flight.shutdown()
        self._snapshots.stop()
        self._retention.stop()
        self.tasks.stop()
