"""Snapshots of tasks in any storage that fsspec reaches: written, listed, fetched, pruned.

Below ``<url>/<app>/<partition>/`` lie ``files/<SHA-256>``, named by content and shared by
snapshots, and ``manifests/<id>.json``. A manifest is written last: without it there is no snapshot.
"""
