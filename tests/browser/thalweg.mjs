// Runs `thalweg up` for the tests, with its own config and free ports, and checks its exit status.

import { spawn } from "node:child_process";
import { once } from "node:events";
import { cp, mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";

const HERE = dirname(fileURLToPath(import.meta.url));
const SAMPLE = resolve(HERE, "../../assets/sample");
const PROGRAM = resolve(process.env.THALWEG ?? join(HERE, "../../target/debug/thalweg"));

const DELIVERY = ["origin", "ingest", "edge"];

/** Maximum time for all roles to listen, and for the program to stop. */
const READY_MS_MAX = 10_000;
const STOP_MS_MAX = 10_000;

/** Name of the presentation that cannot be served. */
export const BROKEN = "broken";

/**
 * Starts the program with the sample, on demand and as channel `demo`, and a broken presentation.
 * `agent` adds an agent that stores sockets and responses, and sets the edge's congestion control.
 * `controller`, with `agent`, adds a controller that decides every two seconds and starts as many
 * trials as it may. Without `delivery`, only the console and these roles run.
 */
export async function startThalweg({ agent = false, controller = false, delivery = true } = {}) {
  const directory = await mkdtemp(join(tmpdir(), "thalweg-browser-"));
  const media = join(directory, "media");
  await cp(SAMPLE, join(media, "sample"), { recursive: true });
  await addBroken(media);

  const config = join(directory, "thalweg.toml");
  const sections = agentText(directory) + (controller ? controllerText(directory) : "");
  const own = agent ? [`congestion_control = "${CONGESTION_CONTROL}"`, sections] : [];
  await writeFile(config, delivery ? configText(media, ...own) : CONSOLE + sections);
  const child = spawn(PROGRAM, ["up", "--config", config], { stdio: ["ignore", "ignore", "pipe"] });
  const log = [];
  let addresses;
  try {
    addresses = await listening(child, log, delivery ? ["console", ...DELIVERY] : ["console"]);
  } catch (error) {
    child.kill("SIGKILL");
    await rm(directory, { recursive: true });
    throw error;
  }

  return {
    console: `http://${addresses.console}/`,
    edge: `http://${addresses.edge}`,
    origin: `http://${addresses.origin}`,
    ingest: `http://${addresses.ingest}`,
    log,
    /** Stops the program like Ctrl-C. Returns its exit status, or the signal that killed it. */
    async stop() {
      const exited = child.exitCode === null ? once(child, "exit") : [child.exitCode, child.signalCode];
      child.kill("SIGINT");
      const [status, signal] = await within(STOP_MS_MAX, exited, () => child.kill("SIGKILL"));
      await rm(directory, { recursive: true });
      return signal ?? status;
    },
  };
}

const CONSOLE = `
[console]
listen = "127.0.0.1:0"
`;

/**
 * Returns a config with every role on a free port; `edge` is added to the edge's section, and
 * `more` contains further sections.
 */
function configText(media, edge = "", more = "") {
  return `
[origin]
listen = "127.0.0.1:0"
ingest = "127.0.0.1:0"
admin = "127.0.0.1:0"
media = ${JSON.stringify(media)}

[edge]
listen = "127.0.0.1:0"
admin = "127.0.0.1:0"
${edge}
${CONSOLE}
[[source]]
channel = "demo"
media = ${JSON.stringify(join(media, "sample"))}
${more}`;
}

/**
 * The edge's congestion control when it runs with an agent. No system uses it by default, so the
 * browser's end of a connection uses another one.
 */
export const CONGESTION_CONTROL = "reno";

/** Returns the config section of an agent that samples often enough for a test. */
function agentText(directory) {
  return `
[agent]
period = "500ms"
spool = ${JSON.stringify(`${join(directory, "spool")}=64MiB`)}
sqlite = ${JSON.stringify(join(directory, "telemetry.sqlite"))}
`;
}

function controllerText(directory) {
  return `
[controller]
listen = "127.0.0.1:0"
database = ${JSON.stringify(join(directory, "control.sqlite"))}
window = "2s"
late = "1s"
min_rtt_min = "0ms"
connections_min = 1
exploring_max = 10
evidence_connections_min = 1000000
observed_windows_min = 1
measure = "goodput"
goodput_min = "0B"
congestion_control = "cubic"
`;
}

/** Writes a track that ends in the middle of a box. */
async function addBroken(media) {
  const track = await readFile(join(SAMPLE, "video_180.mp4"));
  await mkdir(join(media, BROKEN));
  await writeFile(join(media, BROKEN, "video.mp4"), track.subarray(0, 2000));
}

/** Waits until all roles listen; returns their addresses. Output lines are appended to `log`. */
async function listening(child, log, roles) {
  const addresses = {};
  const ready = new Promise((done, failed) => {
    createInterface({ input: child.stderr }).on("line", (line) => {
      log.push(line);
      const [, role, address] = line.match(/^(\w+) listening (\S+)$/) ?? [];
      if (role) addresses[role] = address;
      if (roles.every((name) => name in addresses)) done(addresses);
    });
    child.once("error", failed);
    child.once("exit", (status) => failed(new Error(`thalweg exited with ${status}:\n${log.join("\n")}`)));
  });
  return within(READY_MS_MAX, ready, () => {
    throw new Error(`thalweg is not ready:\n${log.join("\n")}`);
  });
}

/**
 * Waits for the promise and returns its value. If that takes longer than `ms`, calls `late`, which
 * may throw.
 */
async function within(ms, promise, late) {
  let timer;
  const passed = new Promise((_, failed) => {
    timer = setTimeout(() => {
      try {
        late();
      } catch (error) {
        failed(error);
      }
    }, ms);
  });
  try {
    return await Promise.race([promise, passed]);
  } finally {
    clearTimeout(timer);
  }
}
