// Sends one request until its answer is final. Copy this file: it needs only fetch (browsers, Node 18 and newer).
//
//     order.paymentKey ??= crypto.randomUUID();      // new for a new intent; store it before you send
//     await save(order);
//     const response = await send("/orders/7/payment", { key: order.paymentKey, body: JSON.stringify({ … }) });
//
// It uses the same key every time: a dropped connection, a timeout, 202, 409, 429 and 5xx are not a final answer. It
// never makes a key. The body must be the same each time: a text or bytes, not a stream.

const FIRST = 250;
const LONGEST = 10_000; // Milliseconds between two tries if the server does not say: they double, with jitter.

// The time limit has passed, and the effect may have happened or may still happen. Keep the key, and ask again later.
export class NotFinal extends Error {
  constructor(key, response) {
    super(`not final yet under the key ${key}: ${response ? `the last answer was ${response.status}` : "no answer came"}`);
    this.key = key;
    this.response = response;
  }
}

// Returns the final answer as a Response, for a success and for a refusal. Times are milliseconds: `patience` for all
// tries, `timeout` for one. fetch gets the rest of `request`. Throws NotFinal.
export async function send(url, { key, patience = 60_000, timeout = 15_000, headers, signal, ...request }) {
  if (!key) throw new TypeError("a key is required: make it once for this intent, and store it before the first try");
  const sent = new Headers(headers);
  sent.set("Idempotency-Key", key);
  const built = new Request(url, { method: "POST", ...request, headers: sent }); // throws where the request is wrong
  const until = Date.now() + patience;
  let next = FIRST;
  let last;
  for (;;) {
    let said;
    try {
      const limit = AbortSignal.timeout(timeout);
      const response = await fetch(built.clone(), { signal: signal ? AbortSignal.any([signal, limit]) : limit });
      const whole = await response.arrayBuffer(); // a connection that drops in the middle of an answer is a dropped connection
      const answer = new Response(whole.byteLength ? whole : null, response);
      if (isFinal(answer)) return answer;
      last = answer;
      said = retryAfter(answer);
    } catch (error) {
      if (signal?.aborted) throw error; // the caller stopped it; the key stays the same
    }
    // Waits at least as long as the server asks, with jitter, so that clients do not retry all at once.
    const pause = said === undefined ? next * (0.5 + Math.random() / 2) : said * (1 + Math.random() / 10);
    next = Math.min(next * 2, LONGEST);
    if (Date.now() + pause > until) throw new NotFinal(key, last);
    await new Promise((resolve) => setTimeout(resolve, pause));
  }
}

// Whether this answer is final: another try would get the same, or needs another request.
export function isFinal(response) {
  // With Retry-After a 409 says "not yet" (in_progress, outcome_unknown, needs_operator), without it is an answer.
  if (response.status === 409) return !response.headers.has("retry-after");
  return ![202, 408, 425, 429].includes(response.status) && response.status < 500;
}

function retryAfter(response) {
  const said = response.headers.get("retry-after")?.trim();
  if (!said) return undefined;
  const time = /^\d+$/.test(said) ? Number(said) * 1000 : Date.parse(said) - Date.now();
  return Number.isNaN(time) ? undefined : Math.max(0, time);
}
