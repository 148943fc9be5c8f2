"""Make the bucket of HOLDFAST_SNAPSHOTS_URL, unless it is there; waits for the server.

Address and credentials come from AWS' usual variables.
"""

from __future__ import annotations

import os
import sys
import time
from urllib.parse import urlsplit

TIMEOUT_S = 120.0
AGAIN_S = 1.0


def main() -> int:
    """Return the exit code: 1 if the server did not answer in time."""
    from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415 - slow imports
    from s3fs import S3FileSystem  # noqa: PLC0415

    bucket = urlsplit(os.environ["HOLDFAST_SNAPSHOTS_URL"]).netloc
    deadline = time.monotonic() + float(os.environ.get("BUCKET_TIMEOUT_S", TIMEOUT_S))
    while True:
        try:
            storage = S3FileSystem(skip_instance_cache=True, use_listings_cache=False)
            if not storage.exists(bucket):
                storage.mkdir(bucket)
        except (OSError, BotoCoreError, ClientError) as error:
            if time.monotonic() > deadline:
                sys.stderr.write(f"no bucket {bucket!r}: {error}\n")
                return 1
            time.sleep(AGAIN_S)
        else:
            return 0


if __name__ == "__main__":
    sys.exit(main())
