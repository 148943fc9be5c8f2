"""A question to the state hosts before a driver is started."""

from __future__ import annotations

from typing import TYPE_CHECKING

from state_lib.errors import HoldfastError, Unauthorized

if TYPE_CHECKING:
    from state_lib.config import Settings

ANSWER_TIMEOUT_S = 5.0


def check_token(settings: Settings) -> None:
    """Show our token to the first host that answers: a driver with a wrong one tries for minutes.

    Hosts that are away are the driver's business: it waits for them.

    Raises:
        ConfigurationError: the token's file cannot be read.
        Unauthorized: a host refuses the token.
    """
    from state_lib.client.http import HostHttp

    token = settings.read_token()
    for address in settings.host_addresses:
        host = HostHttp(address, token, ANSWER_TIMEOUT_S)
        try:
            host.get("/v1/apps", patient=False)
        except Unauthorized as error:
            seen = "a token that it does not accept" if token else "no token, and it wants one"
            raise Unauthorized(
                f"state host {address.id!r} at {address.http_url} was shown {seen}: set "
                "HOLDFAST_TOKEN_FILE (or HOLDFAST_TOKEN) of Airflow's workers to the hosts' token",
                host=address.id,
            ) from error
        except HoldfastError:
            continue
        finally:
            host.close()
        return
