// graphile-worker, with its local queue and its batched completion.
"use strict";

const { Pool } = require("pg");
const { run, runMigrations, makeWorkerUtils, Logger } = require("graphile-worker");
const peer = require("./peer.cjs");

const SIZE = 500;
const JOBS = 100;
const logger = new Logger(() => () => {});
let pool;
let utils;

peer.main({
  version: require("graphile-worker/package.json").version,

  async install(order) {
    await runMigrations({ pgPool: new Pool(peer.connection(order.url)), logger });
  },

  async open(run, connections) {
    pool = new Pool({ ...peer.connection(run.order.url), max: Math.max(connections, 10) });
    pool.on("error", (error) => process.stderr.write(`${error}\n`));
    utils = await makeWorkerUtils({ pgPool: pool, logger });
  },

  enqueue: (number) => utils.addJob("job", { number }),

  async seed(count) {
    await pool.query("DELETE FROM graphile_worker._private_jobs");
    for (let first = 0; first < count; first += 1000) {
      const size = Math.min(1000, count - first);
      await utils.addJobs(Array.from({ length: size }, (_, n) => ({ identifier: "job", payload: { number: first + n } })));
    }
  },

  async work(running) {
    const fast = running.order.work !== "latency";
    await run({
      pgPool: pool,
      logger,
      noHandleSignals: true,
      taskList: { job: ({ number }) => running.called(number) },
      preset: {
        worker: {
          concurrentJobs: running.order.work === "http" ? running.order.slots : JOBS,
          ...(fast ? { localQueue: { size: SIZE }, completeJobBatchDelay: 0 } : {}),
        },
      },
    });
  },

  async left() {
    return Number((await pool.query("SELECT count(*) AS n FROM graphile_worker._private_jobs")).rows[0].n);
  },
});
