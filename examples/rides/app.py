"""A ride service in FastAPI, after the classic example of idempotency keys: book, charge, note, mail.

export IDEM_DATABASE_URL=postgresql://…  STRIPE_SECRET_KEY=sk_test_1
idem db upgrade && python app.py                                       # the tables: idem's, and the service's
idem bank run --port 8600 --account shop:sk_test_1:stored:24h::stripe  # the provider
idem run --no-api --app rides:idem                                     # the daemons
uvicorn app:app

curl -X POST localhost:8000/rides -H 'content-type: application/json' -H 'Idempotency-Key: r1' \
    -d '{"rider": 1, "origin": "here", "destination": "there"}'
"""

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Annotated

from fastapi import Depends, FastAPI, Response
from rides import NewRide, idem, ride
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine
from tables import Base, Rider

from idem import AsyncCall, response

engine = create_async_engine(idem.database_url.replace("postgresql://", "postgresql+psycopg://"))
sessions = async_sessionmaker(engine, expire_on_commit=False)


async def session() -> AsyncIterator[AsyncSession]:
    async with sessions() as db:
        yield db


app = FastAPI()
idem.install(app)  # what idem raises becomes a 503 that says: the same again


@app.post("/rides")
async def create(
    new: NewRide,
    call: Annotated[AsyncCall, Depends(ride.call_async)],
    db: Annotated[AsyncSession, Depends(session)],
) -> Response:
    async with db.begin():
        if await call.reserve(db):  # False: a retry. It writes nothing, and its answer is known
            await call.submit(db, new)
    return response(await call.answer(wait=timedelta(seconds=8)))


async def main() -> None:
    async with engine.begin() as connection:
        await connection.run_sync(Base.metadata.create_all)
    async with sessions.begin() as db:
        await db.merge(Rider(id=1, email="ann@example.com", card="pm_card_visa"))
        await db.merge(Rider(id=2, email="bob@example.com", card="pm_card_chargeDeclined"))
    await engine.dispose()


if __name__ == "__main__":
    import asyncio

    asyncio.run(main())
