"""The shop's own tables. idem's stand beside them, in the schema `idem` of the same database."""

from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "orders"

    id: Mapped[int] = mapped_column(primary_key=True)
    total: Mapped[int]
    """In cents."""
    state: Mapped[str] = mapped_column(default="open", server_default="open")
    """open → paying → paid, or → open again where the bank has refused."""
    payment: Mapped[str | None]
    """The bank's name for it."""
