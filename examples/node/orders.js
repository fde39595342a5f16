// Places an order and requests its payment, in one transaction. Run it twice: the second time is a retry.
//
//     DATABASE_URL=postgresql://… node orders.js order-1 4200
import pg from "pg";
import { accept, answer, transaction } from "./idem.js";

const [id = "order-1", amount = "4200"] = process.argv.slice(2);
const pool = new pg.Pool({ connectionString: process.env.DATABASE_URL });

async function placeOrder(client) {
  const decision = await accept(client, {
    tenant: "acme",
    operation: "payments.create",
    key: `charge-${id}`, // derived from the order, so that every retry has the same key
    params: { amount: Number(amount), currency: "eur" },
    notify: true, // wakes an idle worker at COMMIT; without it, it finds the row within its polling interval
  });
  // Only a new key writes: a retry finds its order there, and must not make another.
  if (decision.decision === "accepted") {
    await client.query("INSERT INTO orders (id, amount, intent) VALUES ($1, $2, $3)", [
      id,
      Number(amount),
      decision.intent_id,
    ]);
  }
  return answer(decision);
}

try {
  await pool.query(
    "CREATE TABLE IF NOT EXISTS orders (id text PRIMARY KEY, amount integer NOT NULL, intent uuid NOT NULL)",
  );
  const decision = await transaction(pool, placeOrder);
  console.log(JSON.stringify({ ...decision, body: decision.body?.toString("utf8") }));
} catch (error) {
  // A refusal of idem.accept says what is wrong (message) and what to do (hint); the transaction is rolled back.
  console.error(`${error.code ?? "error"}: ${error.message}${error.hint ? `\n${error.hint}` : ""}`);
  process.exitCode = 1;
} finally {
  await pool.end();
}
