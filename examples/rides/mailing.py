"""The service's mail: a function that sends, and one that is asked what became of a mail.

Here a mail is a line of a file, so that you need no mail server to try it; docs/adopt/send.md has one over SMTP.
"""

import json
import os
from pathlib import Path

from idem.outcomes import Absent, Succeeded
from idem.sending import Question, Sending, SendRequest

SENT = Path(os.environ.get("RIDES_MAILS", "mails.jsonl"))


def send(request: SendRequest, call: Sending) -> Succeeded:
    mail = {"id": request.key, **request.json}  # the same id in every attempt
    call.start()  # the last check, immediately before what has an effect
    with SENT.open("a") as sent:
        sent.write(json.dumps(mail) + "\n")
    return Succeeded(request.key)


def find(question: Question) -> Succeeded | Absent:
    lines = SENT.read_text().splitlines() if SENT.exists() else []
    found = any(json.loads(line)["id"] == question.provider_key for line in lines)
    return Succeeded(question.provider_key) if found else Absent()
