// pg-boss: its own fetch and complete in several loops, because its worker rests between two batches; its worker where
// one job comes at a time.
"use strict";

const { Pool } = require("pg");
const loaded = require("pg-boss");
const peer = require("./peer.cjs");

const PgBoss = loaded.PgBoss ?? loaded;
const LANES = { drain: [4, 250], http: [10, 10] };
const WORKERS = 10;
const QUEUE = "job";
let boss;
let pool;

async function start(url, max) {
  boss = new PgBoss({ ...peer.connection(url), max, supervise: false, schedule: false });
  boss.on("error", (error) => process.stderr.write(`${error}\n`));
  await boss.start();
}

async function lane(running, size) {
  for (;;) {
    const jobs = await boss.fetch(QUEUE, { batchSize: size });
    if (!jobs || jobs.length === 0) return;
    await Promise.all(jobs.map((job) => running.called(job.data.number)));
    await boss.complete(QUEUE, jobs.map((job) => job.id));
  }
}

peer.main({
  version: require("pg-boss/package.json").version,

  async install(order) {
    await start(order.url, 2);
    await boss.createQueue(QUEUE);
  },

  async open(run, connections) {
    pool = new Pool({ ...peer.connection(run.order.url), max: 2 });
    await start(run.order.url, Math.max(connections, 10));
  },

  enqueue: (number) => boss.send(QUEUE, { number }),

  async seed(count) {
    await pool.query("DELETE FROM pgboss.job");
    for (let first = 0; first < count; first += 1000) {
      const size = Math.min(1000, count - first);
      await boss.insert(Array.from({ length: size }, (_, n) => ({ name: QUEUE, data: { number: first + n } })));
    }
  },

  async work(running) {
    if (running.order.work === "latency") {
      const options = { batchSize: 10, pollingIntervalSeconds: 0.5 };
      for (let n = 0; n < WORKERS; n++) {
        await boss.work(QUEUE, options, (jobs) => Promise.all(jobs.map((job) => running.called(job.data.number))));
      }
      return;
    }
    const [lanes, size] = LANES[running.order.work];
    for (let n = 0; n < lanes; n++) lane(running, size);
  },

  async left() {
    const found = await pool.query("SELECT count(*) AS n FROM pgboss.job WHERE state < 'completed'");
    return Number(found.rows[0].n);
  },
});
