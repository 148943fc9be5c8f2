"""State stores: engines (rocksdb, memory) below, typed read-only and writable views above.

Nothing is imported here: workers of restores need the engines alone, and must start fast.
"""
