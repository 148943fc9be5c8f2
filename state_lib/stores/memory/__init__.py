"""The backend in memory, bounded."""

from state_lib.stores.memory.engine import MemoryEngine
from state_lib.stores.memory.options import MemoryOptions

__all__ = ["MemoryEngine", "MemoryOptions"]
