"""Exit 0 if a service answers: ``healthy.py URL [COMPONENT]``, for the health checks of containers.

With COMPONENT the answer is Airflow's health report, and the component in it has to be healthy.
"""

from __future__ import annotations

import json
import sys
import urllib.request

TIMEOUT_S = 4


def ailing(url: str, component: str | None = None) -> str | None:
    """Why a service is not healthy, None if it is."""
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with direct.open(url, timeout=TIMEOUT_S) as answer:
            report = json.loads(answer.read()) if component else {}
        state = report[component]["status"] if component else "healthy"
    except (OSError, ValueError, LookupError) as error:  # refused, no JSON, no such component
        return f"{url}: {error!r}"
    return None if state == "healthy" else f"{url}: {component} is {state}"


def main(arguments: list[str]) -> int:
    """Print why, and return the exit code."""
    why = ailing(*arguments)
    sys.stdout.write(f"{why}\n" if why else "")
    return 1 if why else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
