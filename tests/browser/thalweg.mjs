// Runs `thalweg up` for the tests: a config of its own, free ports, and an end that is checked.

import { spawn } from "node:child_process";
import { once } from "node:events";
import { cp, mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";

const HERE = dirname(fileURLToPath(import.meta.url));
const SAMPLE = resolve(HERE, "../../assets/sample");
const PROGRAM = resolve(process.env.THALWEG ?? join(HERE, "../../target/debug/thalweg"));

/** How long the program may take until all its roles listen, and to end once it is told to. */
const READY_MS_MAX = 10_000;
const STOP_MS_MAX = 10_000;

/** The name of the presentation that cannot be served. */
export const BROKEN = "broken";

/** Starts the program with the sample on demand, as channel `demo`, and a broken presentation beside it. */
export async function startThalweg() {
  const directory = await mkdtemp(join(tmpdir(), "thalweg-browser-"));
  const media = join(directory, "media");
  await cp(SAMPLE, join(media, "sample"), { recursive: true });
  await addBroken(media);

  const [edge, origin, console, admin] = await freePorts(4);
  const config = join(directory, "thalweg.toml");
  await writeFile(config, configText({ edge, origin, console, admin, media }));
  const child = spawn(PROGRAM, ["up", "--config", config], { stdio: ["ignore", "inherit", "pipe"] });
  const log = [];
  try {
    await listening(child, log, [edge, origin, console, admin]);
  } catch (error) {
    child.kill("SIGKILL");
    await rm(directory, { recursive: true });
    throw error;
  }

  return {
    console: `http://127.0.0.1:${console}/`,
    edge: `http://127.0.0.1:${edge}`,
    origin: `http://127.0.0.1:${origin}`,
    log,
    /** Ends the program as Ctrl-C does; gives its exit status, or the signal that was needed. */
    async stop() {
      const exited = child.exitCode === null ? once(child, "exit") : [child.exitCode, child.signalCode];
      child.kill("SIGINT");
      const [status, signal] = await within(STOP_MS_MAX, exited, () => child.kill("SIGKILL"));
      await rm(directory, { recursive: true });
      return signal ?? status;
    },
  };
}

function configText({ edge, origin, console, admin, media }) {
  const address = (port) => JSON.stringify(`127.0.0.1:${port}`);
  return `
[origin]
listen = ${address(origin)}
media = ${JSON.stringify(media)}

[edge]
listen = ${address(edge)}
admin = ${address(admin)}

[console]
listen = ${address(console)}

[[source]]
channel = "demo"
media = ${JSON.stringify(join(media, "sample"))}
`;
}

/** A track that ends in the middle of a box. */
async function addBroken(media) {
  const track = await readFile(join(SAMPLE, "video_180.mp4"));
  await mkdir(join(media, BROKEN));
  await writeFile(join(media, BROKEN, "video.mp4"), track.subarray(0, 2000));
}

/** Ports that were free a moment ago, all different. */
async function freePorts(count) {
  const servers = await Promise.all(
    Array.from({ length: count }, async () => {
      const server = createServer().listen(0, "127.0.0.1");
      await once(server, "listening");
      return server;
    }),
  );
  const ports = servers.map((server) => server.address().port);
  await Promise.all(servers.map((server) => once(server.close(), "close")));
  return ports;
}

/** Waits until the program has said of each port that it listens. Its lines are kept in `log`. */
async function listening(child, log, ports) {
  const missing = new Set(ports.map(String));
  const ready = new Promise((done, failed) => {
    createInterface({ input: child.stderr }).on("line", (line) => {
      log.push(line);
      const port = line.match(/listening.*?:(\d+)\b/)?.[1];
      missing.delete(port);
      if (missing.size === 0) done();
    });
    child.once("error", failed);
    child.once("exit", (status) => failed(new Error(`thalweg ended with ${status}:\n${log.join("\n")}`)));
  });
  await within(READY_MS_MAX, ready, () => {
    throw new Error(`thalweg does not listen on ${[...missing].join(", ")}:\n${log.join("\n")}`);
  });
}

/** The promise's value; once `ms` have passed without it, `late` is called, which may throw. */
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
