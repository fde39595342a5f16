// What a program without Python needs of idem: one call in its own transaction, and how to run that transaction again.

// Each decision of idem.accept as an answer to your own client: status and, where it helps, seconds to wait.
export function answer(decision) {
  const wait = Math.max(1, Math.ceil(decision.due_in ?? 0));
  switch (decision.decision) {
    case "accepted":
    case "retrying":
      return { status: 202, intent: decision.intent_id };
    case "replay": // the stored answer, byte for byte
      return { status: decision.response_status, headers: decision.response_headers, body: decision.response_body };
    case "in_progress":
      return { status: 409, code: "in_progress", retryAfter: wait };
    case "unknown": // idem is finding out and does not execute it again
      return { status: 409, code: "outcome_unknown", retryAfter: wait };
    case "needs_operator":
      return { status: 409, code: "needs_operator", retryAfter: 3600 };
    case "mismatch":
      return { status: 422, code: "key_reused" };
    case "expired":
      return { status: 410, code: "key_expired" };
    default:
      throw new Error(`a decision that this program does not know: ${decision.decision}`);
  }
}

// In the caller's open transaction. Numbers that a double cannot hold belong into strings: JSON.stringify rounds them.
export async function accept(client, { tenant, operation, key, params, notify = false }) {
  const { rows } = await client.query("SELECT d.* FROM idem.accept($1, $2, $3, $4::json, $5) AS d", [
    tenant,
    operation,
    key,
    JSON.stringify(params),
    notify,
  ]);
  return rows[0];
}

// SQLSTATEs after which the same transaction may simply run again: nothing of it was written.
const AGAIN = new Set(["40001", "40P01", "55P03"]);

// Runs `work` in a transaction, again where the database says so. What it returns was committed. A lost connection is
// no reason to run it again here: the client retries with its key, and idem knows whether it was committed.
export async function transaction(pool, work, { attempts = 5 } = {}) {
  for (let attempt = 1; ; attempt++) {
    const client = await pool.connect();
    let broken;
    try {
      await client.query("BEGIN");
      const result = await work(client);
      await client.query("COMMIT");
      return result;
    } catch (error) {
      await client.query("ROLLBACK").catch((lost) => (broken = lost));
      if (!AGAIN.has(error.code) || attempt === attempts) throw error;
    } finally {
      client.release(broken);
    }
    await new Promise((resolve) => setTimeout(resolve, 20 * 2 ** attempt * Math.random()));
  }
}
