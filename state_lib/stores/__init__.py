"""State stores: engines (rocksdb, memory) below, stores of bytes and what queries select above.

Nothing is imported here: workers of restores need the engines alone, and must start fast.
"""
