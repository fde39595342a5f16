"""The result of a demo, as text and as JSON."""

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass

from idem.cli.demo.constants import UNSCALED, Constants
from idem.cli.demo.outage import Calm
from idem.cli.demo.proof import DemoProof
from idem.cli.demo.sabotage import Victim
from idem.cli.demo.settings import DemoSettings

MOST_FINDINGS = 20


@dataclass(frozen=True, slots=True)
class DemoResult:
    """The result of a demo."""

    settings: DemoSettings
    proof: DemoProof
    seconds: float
    kills: int
    ended_alone: int
    over: bool
    folder: str
    victim: Victim | None = None
    calm: Sequence[Calm] = ()
    rolled_back: int = 0
    """Payments whose client rolled back accept on purpose: they must not exist and must never happen."""

    @property
    def noisy(self) -> list[Calm]:
        """Daemons that used too much while the database was unavailable."""
        return [calm for calm in self.calm if not calm.is_calm]

    @property
    def caught(self) -> bool:
        """Whether the proof names the victim of the sabotage."""
        return self.victim is not None and any(f.intent == self.victim.intent for f in self.proof.findings)

    @property
    def holds(self) -> bool:
        return self.proof.holds and not self.noisy


def header(settings: DemoSettings, times: Constants) -> str:
    """The header: the plan, and the table of scaled times."""
    lines = [
        f"idem demo: {settings.payments} payments, {settings.flows:.0%} of them flows, {settings.faults:.0%} faults, "
        f"{settings.kills} SIGKILLs, seed {settings.seed}"
        + (f", sabotage {settings.sabotage}" if settings.sabotage else ""),
        f"The contract's times are multiplied by {settings.factor:g} (1/{1 / settings.factor:g}):",
    ]
    for name, real, scaled, why in times.table():
        lines.append(f"  {name:<18} {_time(real):>8} -> {_time(scaled):>8}  {why}")
    lines.append(f"  schedule           {' '.join(map(_time, (s / times.factor for s in times.schedule)))}")
    lines.append(f"                  -> {' '.join(map(_time, times.schedule))}")
    lines.append(f"Not scaled: {UNSCALED}.")
    return "\n".join(lines)


def closing(result: DemoResult) -> str:
    """The result of the proof, as text."""
    proof = result.proof
    rows: list[tuple[str, object]] = [
        ("accepted", proof.accepted),
        ("effects requested", proof.effects_wanted),
        ("effects made", proof.effects_made),
        ("refused by the bank", proof.refused),
        *_flow_rows(proof),
        ("requests made", f"{proof.requests_made} ({proof.second_sends} of them second sends)"),
        ("forbidden second sends", proof.forbidden_sends),
        ("duplicates", proof.duplicates),
        ("lost", proof.lost),
        ("answers that changed", f"{proof.answers_changed} ({proof.answers_compared} compared byte for byte)"),
        ("changes without evidence", proof.evidence_missing),
        ("unsettled at the end", proof.unsettled),
        ("dead letters", f"{proof.letters_expected} expected, {proof.letters_unexpected} unexpected"),
        ("SIGKILLs", f"{result.kills}; claims that were in flight: {proof.claims_lost}"),
        ("daemons exited by themselves", result.ended_alone),
    ]
    if result.rolled_back:
        undone = (
            f"{result.rolled_back} (their transaction was rolled back on purpose after accept: they must never happen)"
        )
        rows.insert(1, ("rolled back by their client", undone))
    if result.kills and not proof.claims_lost:
        rows.append(("", "no kill hit a claim, so this run proves nothing about crashed calls. Try another seed"))
    lines = ["", "The proof, from the clients' log, the database and the bank's log:"]
    lines += [f"  {name:<28} {value}" for name, value in rows]
    lines.append("  unknowns, by how they were settled:" if proof.settled else "  unknowns                     none")
    for how, times in proof.settled.items():
        lines.append(
            f"    {how:<24} {times.count:>4}   p50 {times.p50:5.1f} s   p99 {times.p99:5.1f} s   "
            f"longest {times.longest:5.1f} s"
        )
    for calm in result.calm:
        cpu = "-" if calm.cpu is None else f"{calm.cpu:.1%}"
        rate = calm.lines / calm.seconds
        lines.append(f"  while the database was unavailable: {calm.name:<11} {cpu} CPU, {rate:.2f} log lines a second")
    for finding in proof.findings[:MOST_FINDINGS]:
        lines.append(f"  BROKEN {finding}")
    if len(proof.findings) > MOST_FINDINGS:
        lines.append(f"  ... and {len(proof.findings) - MOST_FINDINGS} more")
    for calm in result.noisy:
        lines.append(f"  BROKEN {calm.name} used too much CPU or log while the database was unavailable")
    lines.append(_verdict(result))
    return "\n".join(lines)


def _flow_rows(proof: DemoProof) -> list[tuple[str, object]]:
    flows = proof.flows
    if not flows.flows:
        return []
    ended = (
        f"{flows.succeeded} done, {flows.refused} refused ({flows.undone} of them undone), "
        f"{flows.partial} partly done with a dead letter"
    )
    effects = ", ".join(f"{name} {count}" for name, count in flows.effects.items())
    return [
        ("flows", f"{flows.flows}: {ended}"),
        ("effects by step", effects),
        ("steps against the bank's log", f"{proof.steps_wrong} wrong"),
    ]


def to_json(result: DemoResult) -> str:
    """The same as JSON with stable keys."""
    settings = result.settings
    data = {
        "holds": result.holds,
        "seed": settings.seed,
        "payments": settings.payments,
        "flows": settings.flows,
        "faults": settings.faults,
        "factor": settings.factor,
        "seconds": round(result.seconds, 1),
        "rolled_back": result.rolled_back,
        "kills": result.kills,
        "ended_alone": result.ended_alone,
        "over": result.over,
        "sabotage": str(settings.sabotage) if settings.sabotage else None,
        "victim": dataclasses.asdict(result.victim) if result.victim else None,
        "caught": result.caught if settings.sabotage else None,
        "outage": [dataclasses.asdict(calm) | {"is_calm": calm.is_calm} for calm in result.calm],
        "folder": result.folder,
        "proof": dataclasses.asdict(result.proof),
    }
    return json.dumps(data, indent=2)


def _verdict(result: DemoResult) -> str:
    took = f"in {result.seconds:.0f} s"
    sabotage = result.settings.sabotage
    if sabotage is not None:
        if result.victim is None:
            return f"The sabotage {sabotage} found no victim {took}; seed {result.settings.seed}."
        word = "caught" if result.caught else "MISSED"
        return f"The proof {word} the sabotage {sabotage} of intent {result.victim.intent}, key {result.victim.key}."
    if result.holds:
        return f"Every promise held, {took}; seed {result.settings.seed}."
    return f"A promise broke {took}; seed {result.settings.seed}. The three records are in {result.folder}"


def _time(seconds: float) -> str:
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= size and abs(seconds / size - round(seconds / size)) < 1e-9:
            return f"{seconds / size:g}{unit}"
    return f"{seconds:.3g}s"
