"""The service's own tables. idem's stand beside them, in the schema `idem` of the same database."""

from sqlalchemy import ForeignKey
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column


class Base(DeclarativeBase):
    pass


class Rider(Base):
    __tablename__ = "riders"

    id: Mapped[int] = mapped_column(primary_key=True)
    email: Mapped[str]
    card: Mapped[str]
    """Stripe's name for it."""


class Ride(Base):
    __tablename__ = "rides"

    id: Mapped[int] = mapped_column(primary_key=True)
    rider: Mapped[int] = mapped_column(ForeignKey("riders.id"))
    origin: Mapped[str]
    destination: Mapped[str]
    state: Mapped[str]
    """booked → paid, or → cancelled where the card was refused."""
    payment: Mapped[str | None]
    """Stripe's name for it."""


class Phase(Base):
    """What was done for a ride, for those who audit it."""

    __tablename__ = "ride_phases"

    id: Mapped[int] = mapped_column(primary_key=True)
    request: Mapped[str]
    phase: Mapped[str]
    outcome: Mapped[str]
