// Send one wish until its answer is final. Copy this file: it needs fetch alone (browsers, Node 18 and newer).
//
//     order.paymentKey ??= crypto.randomUUID();      // new for a new wish, and stored before it is sent
//     await save(order);
//     const response = await send("/orders/7/payment", { key: order.paymentKey, body: JSON.stringify({ … }) });
//
// The same key every time: a broken line, a time-out, 202, 409, 429 and 5xx are no answer to the wish. It makes no key
// itself. The body must be the same each time: a text or bytes, no stream.

const FIRST = 250;
const LONGEST = 10_000; // Milliseconds between two tries where the server does not say: they double, with chance in them.

// The patience is over, and it may have happened or may still happen. Keep the key, and ask again later with it.
export class NotFinal extends Error {
  constructor(key, response) {
    super(`not final yet under the key ${key}: ${response ? `the last answer was ${response.status}` : "no answer came"}`);
    this.key = key;
    this.response = response;
  }
}

// The final answer as a Response, whether it is good news or not. Times are milliseconds: `patience` for everything,
// `timeout` for one try. What else is in `request` is given to fetch. Throws NotFinal.
export async function send(url, { key, patience = 60_000, timeout = 15_000, headers, signal, ...request }) {
  if (!key) throw new TypeError("a key is needed: made once for this wish, and stored before the first try");
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
      const whole = await response.arrayBuffer(); // a line that breaks in the middle of an answer is a broken line
      const answer = new Response(whole.byteLength ? whole : null, response);
      if (isFinal(answer)) return answer;
      last = answer;
      said = retryAfter(answer);
    } catch (error) {
      if (signal?.aborted) throw error; // the caller's own wish to stop; the key stays what it is
    }
    // Nobody comes sooner than the server asks, and not all come at once.
    const pause = said === undefined ? next * (0.5 + Math.random() / 2) : said * (1 + Math.random() / 10);
    next = Math.min(next * 2, LONGEST);
    if (Date.now() + pause > until) throw new NotFinal(key, last);
    await new Promise((resolve) => setTimeout(resolve, pause));
  }
}

// Whether this is the answer to the wish: another try would get the same, or needs another request.
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
