"""The backend on local disk."""

from state_lib.stores.rocksdb.engine import RocksDBEngine, write_sst
from state_lib.stores.rocksdb.options import RocksDBOptions

__all__ = ["RocksDBEngine", "RocksDBOptions", "write_sst"]
