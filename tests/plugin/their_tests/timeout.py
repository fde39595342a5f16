from shop import pay


def test_timeout_after_the_charge_charges_once(engine, order, idem_bank, lab):
    idem_bank.act_then_drop()
    assert pay(engine, order, "k1").status == 202

    lab.work()
    assert lab.state("k1") == "unknown"
    lab.settle()

    assert pay(engine, order, "k1").status == 201
    assert len(idem_bank.charges) == 1
