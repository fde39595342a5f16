"""Shipping labels, bought by the program's own code under a lease: `python inline_labels.py PARCEL WEIGHT`.

    idem run --no-api --app inline_labels:idem      # the daemons; bank (a carrier here) and database: see idem.toml

Use this if a worker cannot make the call: an SDK with a session, a device, existing code. Run it twice: the second
run prints the same label and makes no call.
"""

import os
import sys

import httpx
from pydantic import BaseModel

from idem import Answer, Idem
from idem.inline import InlineCall
from idem.outcomes import Refused, Succeeded

idem = Idem()


class Parcel(BaseModel):
    id: str
    grams: int


# The operation names its provider, so idem can ask how a lost call ended. idem never makes this call itself.
buy = idem.operation(
    "labels.buy",
    Parcel,
    provider="bank",
    inline=True,
    answer=lambda o: Answer(201 if o.succeeded else 402, {"label": o.reference}),
)


def label(carrier: httpx.Client, parcel: Parcel) -> Answer:
    with buy.inline(parcel, key=f"label-{parcel.id}") as run:
        if run.mine:  # False: a retry, and run.answer() has its answer
            try:
                response = carrier.post(
                    "/payments",
                    json={"amount": parcel.grams, "currency": "eur"},
                    headers={"Idempotency-Key": run.provider_key},  # look-ups find the call by it
                    timeout=min(5, run.remaining),
                )
            except httpx.ConnectError as error:
                run.not_executed(str(error))  # certain: nothing has left. The next run makes the call
            else:
                report(run, response)
            # Any other exception leaves the block: it may have happened, and idem finds out.
    return run.answer()


def report(run: InlineCall, response: httpx.Response) -> None:
    """Only an answer from the carrier itself is final."""
    try:
        said = response.json()
        reference, status = said["id"], said["status"]
    except (ValueError, KeyError, TypeError):
        run.ambiguous(f"unreadable answer, status {response.status_code}")
        return
    if status == "succeeded":
        run.complete(Succeeded(reference), http_status=response.status_code)
    elif status == "declined":
        run.complete(Refused(reference), http_status=response.status_code)
    else:
        run.ambiguous(f"the carrier says {status}")


def main(id: str, grams: str) -> int:
    token = os.environ["BANK_TOKEN"]
    origin = os.environ.get("CARRIER_URL", "http://127.0.0.1:8600")
    with httpx.Client(base_url=origin, headers={"Authorization": f"Bearer {token}"}) as carrier:
        try:
            answer = label(carrier, Parcel(id=id, grams=int(grams)))
        except httpx.HTTPError as error:
            print(f"it is not known yet whether there is a label ({error!r}): run it again", file=sys.stderr)
            return 75
    print(answer.status, answer.body.decode())
    return 0 if answer.status == 201 else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
