"""``python -m state_lib.stack.launch``: supervisord, whose children each get their own session.

supervisor puts a child into its own process group only. A group still shares the session, and with
it the controlling terminal and whatever a login manager does to sessions. The child calls one
method of ``ServerOptions`` between fork and exec: there ``setsid`` makes a new session *and* a new
group whose id is the child's, so ``stopasgroup`` and ``killasgroup`` work as before. (Once a group
leader it would be too late: ``setsid`` is refused to leaders, so no launcher around the program can
do it without one more fork, whose process supervisor would not know.)
"""

from __future__ import annotations

import os

from supervisor import supervisord
from supervisor.options import ServerOptions


def main() -> None:
    """Run supervisord with the arguments of this process."""
    ServerOptions.setpgrp = lambda _: os.setsid()
    supervisord.main()


if __name__ == "__main__":
    main()
