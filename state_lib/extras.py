"""Which extra brings a package that is not installed."""

from __future__ import annotations

from state_lib.errors import ConfigurationError

BROUGHT_BY = {
    "airflow": "airflow",
    "cjdk": "spark",
    "fastapi": "host",
    "jgo": "spark",
    "pandas": "spark",
    "prometheus_client": "host",
    "pyspark": "spark",
    "supervisor": "demo",
    "uvicorn": "host",
}
"""Package → extra of pyproject.toml."""


def missing(error: ModuleNotFoundError) -> ConfigurationError | None:
    """What to install after an import that failed; None if no extra brings it."""
    # Only Airflow is asked for by the name of its distribution.
    package = (error.name or "").partition(".")[0].removeprefix("apache-")
    extra = BROUGHT_BY.get(package)
    if extra is None:
        return None
    return ConfigurationError(
        f"{package} is not installed here: pip install 'holdfast[{extra}]'",
        package=package,
        extra=extra,
    )
