"""The DAG that puts an application's topics right, once a person has approved it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from airflow.sdk import DAG, BaseNotifier, TriggerRule

from holdfast_airflow.operators.approval import ApproveOnceOperator
from holdfast_airflow.operators.lost_topics import (
    FindLostTopicsOperator,
    RepairLostTopicsOperator,
)
from holdfast_airflow.operators.repair import RepairChangelogOperator
from holdfast_airflow.operators.verify import VerifyChangelogsOperator

REPAIR_DOC = """
### Repair the topics of `{app}`

1. `plan` compares how the topics that `{app}` owns are set with how they have to be, and shows the
   difference in its log. If there is none, the rest is skipped.
2. `approve` waits for a person, under *Required Actions*. Nothing approves by itself, also not
   after a time. A rejection skips the rest. Cleared, it fails: trigger the DAG again.
3. `apply` sets what was approved, and nothing else. It refuses if the topics are set differently by
   then: trigger the DAG again.

Beside that, for topics that were deleted, cut or made again:

1. `find_lost` asks every host what its tasks lost, and whether its copy can take their place. If
   nothing is lost, the rest is skipped.
2. `approve_lost` waits for a person, as `approve` does.
3. `repair_lost` creates what does not exist; hosts write it anew, read it back and compare. The
   stream has ended when it met the loss: start it again.

`verify` checks the application after either, except for compaction: the brokers' cleaner needs a
while. Sources and outputs are never altered. `holdfast repair config {app}` and `holdfast repair
changelog {app}` do the same.
It is skipped while the application has not run yet, or not since it was reset.
"""
ASKED = """
| topic | setting | is | is to be |
|---|---|---|---|
{%- for one in ti.xcom_pull(task_ids='plan')['changes'] %}
| `{{ one.topic }}` | `{{ one.key }}` | `{{ one.seen }}` | `{{ one.wanted }}` |
{%- endfor %}
"""
ASKED_LOST = """
| task | topic | what was seen | copy | at commit |
|---|---|---|---|---|
{%- for one in ti.xcom_pull(task_ids='find_lost')['losses'] %}
{%- for topic, seen in one.topics.items() %}
| {{ one.task }} | `{{ topic }}` | {{ seen }} | {{ one.snapshot or one.host }} | \
{{ one['copy'] | join('/') }} |
{%- endfor %}
{%- endfor %}
"""


def repair_dag(
    app: str,
    *,
    notifiers: Sequence[BaseNotifier] = (),
    schedule: timedelta | str | None = None,
    tags: Sequence[str] = (),
    approval: dict[str, Any] | None = None,
    **operator: Any,
) -> DAG:
    """The DAG ``<app>_repair``: settings, lost topics, each once it is approved, and `verify`.

    Args:
        app: The application's id.
        notifiers: Whom to tell that a person is waited for: any notifiers of Airflow; see
            `IncidentNotifier`.
        schedule: When it runs; None: only when it is triggered.
        tags: Besides ``holdfast`` and ``repair``.
        approval: More arguments of Airflow's `ApprovalOperator`, such as ``assigned_users``.
        operator: More arguments of the other operators: ``conn_id``, ``env``, ``retries``, ….

    Raises:
        ValueError: ``approval`` has a default: nobody but a person approves.
    """
    if "defaults" in (approval or {}):
        raise ValueError(
            f"repair_dag({app!r}) was given approval={approval!r}: what would be approved or "
            "rejected without a person; leave 'defaults' out"
        )
    with DAG(
        f"{app}_repair",
        description=f"Puts the topics of {app} right, once a person has approved it",
        doc_md=REPAIR_DOC.format(app=app),
        schedule=schedule,
        catchup=False,
        max_active_runs=1,
        tags=["holdfast", "repair", *tags],
    ) as dag:
        given: dict[str, Any] = {"retries": 3, "retry_delay": timedelta(seconds=30), **operator}
        plan = RepairChangelogOperator(
            task_id="plan", app=app, only_plan=True, skip_unknown=True, **given
        )
        asked: dict[str, Any] = {"app": app, "notifiers": notifiers, **(approval or {})}
        approve = ApproveOnceOperator(
            task_id="approve", subject=f"Set these topics of {app}?", body=ASKED, **asked
        )
        apply = RepairChangelogOperator(task_id="apply", app=app, approved=plan.output, **given)
        find = FindLostTopicsOperator(task_id="find_lost", app=app, skip_unknown=True, **given)
        approve_lost = ApproveOnceOperator(
            task_id="approve_lost",
            subject=f"Write these topics of {app} anew?",
            body=ASKED_LOST,
            **asked,
        )
        repair_lost = RepairLostTopicsOperator(
            task_id="repair_lost", app=app, losses=find.output, **given
        )
        verify = VerifyChangelogsOperator(
            task_id="verify",
            app=app,
            read_logs=False,
            trigger_rule=TriggerRule.NONE_FAILED_MIN_ONE_SUCCESS,
            **given,
        )
        plan >> approve >> apply >> verify
        find >> approve_lost >> repair_lost >> verify
    return dag
