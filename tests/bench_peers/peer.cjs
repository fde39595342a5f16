// What the drivers of Node peers share: as peer.py, for Node.js.
"use strict";

const http = require("node:http");
const readline = require("node:readline");

const WARM = 50;
const INTERVAL = 20;
const POLL = 5;

const lines = readline.createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const sleep = (ms) => new Promise((done) => setTimeout(done, ms));
const say = (result) => process.stdout.write(JSON.stringify(result) + "\n");
const cpu = () => { const used = process.cpuUsage(); return (used.user + used.system) / 1e6; };
const now = () => performance.now() / 1e3;
const wall = () => performance.timeOrigin + performance.now();

async function heard() {
  const line = await lines.next();
  if (line.done) process.exit(1);
  return line.value;
}

async function ready() {
  process.stdout.write("ready\n");
  await heard();
}

async function done(result) {
  say(result);
  await heard();
}

// One workload: its handler calls `called`.
class Run {
  constructor(order) {
    this.order = order;
    this.count = order.count;
    this.calls = 0;
    this.began = new Map();
    this.allCalled = new Promise((resolve) => { this.finish = resolve; });
    this.agent = new http.Agent({ keepAlive: true, maxSockets: order.slots });
  }

  async called(number) {
    this.first ??= [now(), cpu()];
    if (this.order.work === "latency") this.began.set(number, wall());
    if (this.order.work === "http") await this.post(number);
    if (++this.calls >= this.count) this.finish();
  }

  post(number) {
    const body = JSON.stringify({ amount: 100 + (number % 900), currency: "eur", order: `order-${number}` });
    const headers = {
      "content-type": "application/json", "content-length": Buffer.byteLength(body), "idempotency-key": `job-${number}`,
    };
    return new Promise((resolve, reject) => {
      const request = http.request(
        this.order.origin + "/payments", { method: "POST", agent: this.agent, headers }, (answer) => {
          let text = "";
          answer.on("data", (chunk) => { text += chunk; });
          answer.on("end", () => {
            if (answer.statusCode === 201) resolve(JSON.parse(text));
            else reject(new Error(`status ${answer.statusCode}`));
          });
        });
      request.on("error", reject);
      request.end(body);
    });
  }
}

async function enqueue(peer, run) {
  const lanes = run.order.connections;
  await peer.open(run, lanes);
  const lane = async (first) => {
    for (let number = first; number < run.count; number += lanes) await peer.enqueue(number);
  };
  await Promise.all(Array.from({ length: lanes }, (_, first) => peer.enqueue(-1 - first)));
  await ready();
  const [began, used] = [now(), cpu()];
  await Promise.all(Array.from({ length: lanes }, (_, first) => lane(first)));
  await done({ seconds: now() - began, cpu: cpu() - used });
}

async function drain(peer, run) {
  await peer.open(run, 1);
  await peer.seed(run.count);
  await ready();
  await peer.work(run);
  await run.allCalled;
  while (await peer.left()) await sleep(POLL);
  const [began, used] = run.first;
  await done({ seconds: now() - began, cpu: cpu() - used });
}

async function latency(peer, run) {
  await peer.open(run, 1);
  await peer.seed(0);
  await peer.work(run);
  run.count += WARM;
  const committed = new Map();
  let began = now() * 1e3 + 1000;
  for (let number = 0; number < run.count; number++) {
    if (number === WARM) {
      await ready();
      began = now() * 1e3 - number * INTERVAL;
    }
    await sleep(Math.max(0, began + number * INTERVAL - now() * 1e3));
    await peer.enqueue(number);
    if (number >= WARM) committed.set(number, wall());
  }
  await run.allCalled;
  const took = [...committed].map(([number, at]) => run.began.get(number) - at).sort((a, b) => a - b);
  await done({ p50: took[Math.floor(took.length / 2)], p99: took[Math.floor(took.length * 0.99)] });
}

// `peer`: version, install(url), open(run, connections), enqueue(number), seed(count), work(run), left().
async function main(peer) {
  const order = JSON.parse(await heard());
  if (order.work === "install") {
    await peer.install(order);
    say({ version: peer.version });
  } else {
    await { enqueue, drain, http: drain, latency }[order.work](peer, new Run(order));
  }
  process.exit(0);
}

process.on("unhandledRejection", (error) => {
  process.stderr.write(`${error}\n`);
  process.exit(1);
});

// How `pg` is told where the database is: its URLs have no socket folders.
function connection(url) {
  const found = new URL(url.replace("@/", "@localhost/"));
  const host = found.searchParams.get("host") ?? found.hostname;
  return {
    host,
    port: Number(found.searchParams.get("port") ?? (found.port || 5432)),
    user: decodeURIComponent(found.username),
    password: found.password ? decodeURIComponent(found.password) : undefined,
    database: found.pathname.slice(1),
  };
}

module.exports = { main, connection };
