"""``[host]``: the state hosts: where they are, who may ask them, memory, snapshots, restores."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ByteSize, Field, PositiveInt, SecretStr, field_validator

from state_lib.errors import ConfigurationError
from state_lib.protocol.addresses import parse_hosts
from state_lib.settings.kinds import MIB, AbsolutePath, Seconds

HOSTS = "host-1=127.0.0.1:28815/28816,host-2=127.0.0.1:28825/28826"


class HostSettings(BaseModel):
    """The section ``[host]``."""

    hosts: str = Field(
        HOSTS,
        description="State hosts: id=address:flight-port/http-port, separated by commas.",
    )
    token: SecretStr | None = Field(
        None, description="Bearer token of the hosts. None: no token, for loopback only."
    )
    token_file: AbsolutePath | None = Field(
        None, description="File that holds the token; wins over `token`. Made absolute."
    )
    block_cache_bytes: ByteSize = Field(
        ByteSize(256 * MIB),
        description="RocksDB's block cache of one host, shared by its tasks, in bytes (or '1GiB').",
    )
    write_buffer_bytes: ByteSize = Field(
        ByteSize(128 * MIB),
        description="RocksDB's memtables of one host, all tasks together, in bytes (or '1GiB').",
    )
    flush_interval_s: Seconds = Field(
        60.0,
        description="Longest time between flushes of a task, in s: bounds what is replayed after a "
        "kill. A task that would replay 25,000 records or more is flushed four times as often.",
    )
    snapshots_url: str = Field(
        "",
        description="Where snapshots are kept: a directory or any URL that fsspec knows, "
        "s3://bucket/prefix for example. Default: snapshots in `home`.",
    )
    restore_mode: Literal["auto", "orchestrated"] = Field(
        "auto",
        description="What a host does about a lost store: restore it by the plan, or report it and "
        "wait for Airflow's restore DAG or `holdfast restore run`. In a local stack with Airflow: "
        "orchestrated.",
    )
    num_restore_workers: Annotated[int, Field(ge=0, le=64)] | None = Field(
        None,
        description="Processes that read long changelogs of one host beside each other; each takes "
        "up to 200 MB. 0: the host reads by itself. Default: the machine's cores, shared among the "
        "hosts of `hosts` that have the same address; 1 to 4.",
    )
    restore_batch_size: PositiveInt = Field(
        1_000, description="Records that a restore reads at once."
    )

    @field_validator("hosts")
    @classmethod
    def _parsable(cls, hosts: str) -> str:
        try:
            parse_hosts(hosts)
        except ConfigurationError as error:
            raise ValueError(error.message) from error
        return hosts
