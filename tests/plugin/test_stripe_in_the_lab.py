"""A test of an application with the built-in Stripe contract: the bank answers everything that this asks."""

from fix_project import Project

SETTINGS = """
[providers.stripe]
kind = "stripe"
secret_key = { env = "STRIPE_SECRET_KEY" }
"""
THEIRS = """
import pytest
from pydantic import BaseModel
from sqlalchemy import create_engine

from idem import Answer, Idem, Request

idem = Idem("idem.toml")


class Charge(BaseModel):
    amount: int


charge = idem.operation(
    "charge", Charge, provider="stripe", completes_when="final",
    request=lambda c: Request("POST", "/v1/payment_intents", json={"amount": c.amount, "currency": "eur",
                                                                   "confirm": True}),
    answer=lambda o: Answer(201 if o.succeeded else 402),
)


@pytest.mark.parametrize("word", [None, "act_then_drop", "drop_before_acting", "cached_500", "garble", "unavailable",
                                  "throttle", "unauthorized"])
def test_settles(idem_database, idem_bank, idem_lab, word):
    lab = idem_lab(idem)
    if word:
        getattr(idem_bank, word)()
    with create_engine(idem_database.replace("postgresql", "postgresql+psycopg", 1)).begin() as db:
        charge.accept(db, Charge(amount=1), key="k")
    lab.settle()
    assert lab.state("k") == "completed", word
    assert len(idem_bank.charges) == 1, word
    assert lab.dead_letters == [], word


@pytest.mark.parametrize("word", ["decline"])
def test_a_refusal_is_an_answer(idem_database, idem_bank, idem_lab, word):
    lab = idem_lab(idem)
    getattr(idem_bank, word)()
    with create_engine(idem_database.replace("postgresql", "postgresql+psycopg", 1)).begin() as db:
        charge.accept(db, Charge(amount=1), key="k")
    lab.settle()
    assert lab.state("k") == "completed"
    assert idem_bank.charges == []
"""


def test_every_word_of_the_bank_ends_as_with_stripe(project: Project) -> None:
    (project.folder / "idem.toml").write_text(SETTINGS)
    project.write(test_stripe=THEIRS)
    done = project.run("test_stripe.py", "-q")
    assert (done.code, done.count("passed")) == (0, 9), done.output
