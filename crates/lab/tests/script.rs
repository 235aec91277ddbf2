//! Tests of `load --script`, with scripts like wrk's own, against a server that records requests;
//! some compare with wrk itself.
#![allow(clippy::unwrap_used)]

mod program;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::thread;

use thalweg_load::ErrorKind;
use thalweg_load::figures::Figures;
use thalweg_load::report::from_json;

use program::{counts, lab, measured, refused};

/// Server that records requests and, by default, sends the same response to each.
struct Witness {
    port: u16,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Witness {
    fn start() -> Self {
        Self::serving(|_| "X-Token: abc\r\nContent-Length: 4\r\n\r\npong".to_owned())
    }

    /// Sends what `respond` returns for a request line: the fields and the content.
    fn serving(respond: impl Fn(&str) -> String + Clone + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let requests = Arc::new(Mutex::new(Vec::new()));
        let all = Arc::clone(&requests);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (stream, requests, respond) = (stream.unwrap(), Arc::clone(&all), respond.clone());
                thread::spawn(move || answer(&stream, &requests, respond));
            }
        });
        Self { port, requests }
    }

    fn url(&self, target: &str) -> String {
        format!("http://127.0.0.1:{}{target}", self.port)
    }

    /// Returns the requests since the last call, each as request line, fields sorted by name, and
    /// content.
    fn requests(&self) -> Vec<String> {
        std::mem::take(&mut *self.requests.lock().unwrap())
    }
}

fn answer(mut stream: &TcpStream, requests: &Mutex<Vec<String>>, respond: impl Fn(&str) -> String) {
    let mut reader = BufReader::new(stream);
    loop {
        let mut lines = Vec::new();
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line).unwrap_or(0) == 0 {
                return;
            }
            match line.trim_end() {
                "" => break,
                line => lines.push(line.to_owned()),
            }
        }
        lines[1..].sort();
        let length = lines.iter().find_map(|line| line.strip_prefix("Content-Length: ")?.parse().ok());
        let mut content = vec![0; length.unwrap_or(0)];
        if reader.read_exact(&mut content).is_err() {
            return;
        }
        let text = format!("{}\n\n{}", lines.join("\n"), String::from_utf8(content).unwrap());
        requests.lock().unwrap().push(text);
        if stream.write_all(format!("HTTP/1.1 200 OK\r\n{}", respond(&lines[0])).as_bytes()).is_err() {
            return;
        }
    }
}

/// A script in its own file.
struct Script(PathBuf);

impl Script {
    fn new(name: &str, text: &str) -> Self {
        let directory =
            PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("script-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let file = directory.join(name);
        fs::write(&file, text).unwrap();
        Self(file)
    }

    fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for Script {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
        // This fails while other scripts are in the directory.
        let _ = fs::remove_dir(self.0.parent().unwrap());
    }
}

/// Runs a script against `url`.
fn run(script: &Script, options: &str, url: &str) -> (Figures, i32) {
    measured(&format!("--script {} {options}", script.path()), &[url.to_owned()])
}

const COUNTER: &str = r#"
counter = 0
request = function()
   path = "/" .. counter
   wrk.headers["X-Counter"] = counter
   counter = counter + 1
   return wrk.format(nil, path)
end
"#;

const POST: &str = r#"
wrk.method = "POST"
wrk.body   = "foo=bar&baz=quux"
wrk.headers["Content-Type"] = "application/x-www-form-urlencoded"
"#;

const PIPELINE: &str = r#"
init = function(args)
   local r = {}
   r[1] = wrk.format(nil, "/?foo")
   r[2] = wrk.format(nil, "/?bar")
   r[3] = wrk.format(nil, "/?baz")
   req = table.concat(r)
end

request = function()
   return req
end
"#;

#[test]
fn requests_are_the_same_as_from_wrk() {
    let witness = Witness::start();
    for (name, text) in [("counter.lua", COUNTER), ("post.lua", POST), ("pipeline.lua", PIPELINE)] {
        let (script, url) = (Script::new(name, text), witness.url("/a?b=c"));
        let arguments = ["-t", "1", "-c", "1", "-d", "1s", "-H", "X-Given: 1", "-s", script.path(), &url];
        let wrk = Command::new("wrk").args(arguments).output().expect("tools/setup test installs wrk");
        assert!(wrk.status.success(), "{}", String::from_utf8_lossy(&wrk.stderr));
        let by_wrk = witness.requests();
        let requests =
            ["--script", script.path(), "-n", "20", "-c", "1", "-H", "X-Given: 1", "--json", "-", &url];
        let (figures, status) = program::done(lab(&requests).spawn().unwrap());
        assert_eq!((status, figures.requests, figures.content_bytes), (0, 20, 80));
        let seen = witness.requests();
        // A last request from wrk may have arrived after the list above was taken.
        let by_us = &seen[seen.len() - 20..];
        assert_eq!(by_us, &by_wrk[..20], "{name}");
    }
}

#[test]
fn script_receives_responses() {
    let script = Script::new(
        "auth.lua",
        r#"
token = nil
path  = "/authenticate"

request = function()
   return wrk.format("GET", path)
end

response = function(status, headers, body)
   if not token and status == 200 and body == "pong" then
      token = headers["X-Token"]
      path  = "/resource"
      wrk.headers["X-Token"] = token
   end
end
"#,
    );
    let witness = Witness::start();
    let (_, status) = run(&script, "-n 3 -c 1", &witness.url("/"));
    let host = format!("Host: 127.0.0.1:{}", witness.port);
    let resource = format!("GET /resource HTTP/1.1\n{host}\nX-Token: abc\n\n");
    assert_eq!(status, 0);
    assert_eq!(
        witness.requests(),
        [format!("GET /authenticate HTTP/1.1\n{host}\n\n"), resource.clone(), resource]
    );
}

/// The script of `reproduce lumen` reads a manifest whose stream began 100 s ago in Unix time.
#[test]
fn live_script_requests_complete_segments_at_offsets() {
    let date = Command::new("date").args(["-u", "-d", "100 seconds ago", "+%FT%TZ"]).output().unwrap();
    let start = String::from_utf8(date.stdout).unwrap();
    let mpd = format!(
        r#"<MPD type="dynamic" availabilityStartTime="{}" minimumUpdatePeriod="PT1S">
<Period id="0" start="PT0S"><AdaptationSet contentType="audio"></AdaptationSet></Period>
<Period id="1" start="PT1M10S">
<AdaptationSet id="0" contentType="audio"><SegmentTemplate duration="1"/><Representation id="a"/></AdaptationSet>
<AdaptationSet id="1" contentType="video">
<SegmentTemplate timescale="500" duration="100" startNumber="7" media="$RepresentationID$/$Number$.m4s"/>
<Representation id="low"/><Representation id="high"/>
</AdaptationSet></Period></MPD>"#,
        start.trim()
    );
    let witness = Witness::serving(move |line| {
        let (kind, content) =
            if line.contains("/live.mpd") { ("application/dash+xml", &*mpd) } else { ("video/mp4", "x") };
        format!("Content-Type: {kind}\r\nContent-Length: {}\r\n\r\n{content}", content.len())
    });
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/src/reproduce/lumen/live-offsets.lua");
    let url = witness.url("/a/live.mpd?b=c");
    let arguments = ["-c", "20", "-d", "4s", "--json", "-", "--script", file, &url, "--", "10"];
    let (figures, status) = program::done(lab(&arguments).spawn().unwrap());
    assert_eq!((status, figures.errors_total()), (0, 0));
    let requests = witness.requests();
    let targets: Vec<&str> = requests.iter().filter_map(|request| request.split(' ').nth(1)).collect();
    let manifests = targets.iter().filter(|target| **target == "/a/live.mpd?b=c").count();
    assert!(manifests > 2, "the manifest is read again: {targets:?}");
    let is_manifest = |target: &&&str| target.ends_with("/live.mpd?b=c");
    let segments = targets.iter().filter(|target| !is_manifest(target)).map(|target| {
        let (track, number) =
            target.strip_prefix("/a/").unwrap().strip_suffix(".m4s").unwrap().split_once('/').unwrap();
        (track, number.parse::<u64>().unwrap())
    });
    let segments: Vec<(&str, u64)> = segments.collect();
    assert!(["low", "high"].iter().all(|track| segments.iter().any(|(of, _)| of == track)), "{segments:?}");
    assert!(segments.iter().all(|(track, _)| *track != "a"), "{segments:?}");
    // The period began 30 s before the run. Of its segments of 0.2 s, 150 are complete, of which
    // the last 50 are at most 10 s old. The run takes at most 10 s, and clocks are read as whole
    // seconds.
    let (least, most) = segments
        .iter()
        .fold((u64::MAX, 0), |(least, most), (_, number)| (least.min(*number), most.max(*number)));
    let first = 7 + 150 - 50;
    assert!((first - 10..first + 25).contains(&least), "{segments:?}");
    assert!((least + 35..7 + 150 + 10 * 5).contains(&most), "{segments:?}");
}

#[test]
fn delay_function_delays_each_request() {
    let script = Script::new("delay.lua", "function delay()\n   return 30\nend\n");
    let (figures, status) = run(&script, "-n 5 -c 1", &Witness::start().url("/"));
    assert_eq!((status, figures.requests), (0, 5));
    assert!(figures.measured_s() >= 0.15, "{}", figures.measured_s());
}

const SETUP: &str = r#"
local counter = 1
local threads = {}

function setup(thread)
   thread:set("id", counter)
   thread:set("given", { list = { "a", 2, true } })
   table.insert(threads, thread)
   counter = counter + 1
end

function init(args)
   requests  = 0
   responses = 0
   local msg = "thread %d created for %s with %s of %s"
   print(msg:format(id, args[0], args[1], #args) .. given.list[1] .. given.list[2])
end

function request()
   requests = requests + 1
   return wrk.request()
end

function response(status, headers, body)
   responses = responses + 1
end

function done(summary, latency, requests)
   local total = 0
   for index, thread in ipairs(threads) do
      assert(thread:get("id") == index)
      total = total + thread:get("responses")
   end
   print(("%d of %d in %s"):format(total, summary.requests, summary.duration > 0))
   io.write(("%d bytes, errors %d %d %d %d %d\n"):format(summary.bytes, summary.errors.connect, summary.errors.read,
      summary.errors.write, summary.errors.status, summary.errors.timeout))
   local value, count = latency(1)
   local seen = 0
   for at = 1, #latency do seen = seen + select(2, latency(at)) end
   print(latency.min == value, count > 0, seen, latency.max >= latency:percentile(99), latency.mean > 0,
      latency.stdev >= 0, requests.max >= requests.min)
end
"#;

#[test]
fn setup_and_done_see_all_threads() {
    let (script, witness) = (Script::new("setup.lua", SETUP), Witness::start());
    let url = witness.url("/");
    let arguments =
        ["--script", script.path(), "-n", "40", "-c", "4", "--threads", "2", &url, "--", "one", "two"];
    let output = lab(&arguments).output().unwrap();
    let (out, err) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert_eq!((output.status.code(), &*err), (Some(0), ""));
    for line in [
        &*format!("thread 1 created for {url} with one of 2a2"),
        &format!("thread 2 created for {url} with one of 2a2"),
        "40 of 40 in true",
        "160 bytes, errors 0 0 0 0 0",
        "true\ttrue\t40\ttrue\ttrue\ttrue\ttrue",
    ] {
        assert!(out.lines().any(|found| found == line), "no {line:?} in:\n{out}");
    }
    // The output of init precedes the table; the output of done follows it.
    let at = |part: &str| out.find(part).unwrap();
    assert!(at("created") < at("ttlb") && at("ttlb") < at("40 of 40"), "{out}");
}

#[test]
fn script_output_is_not_in_the_json() {
    let (script, witness) = (Script::new("printed.lua", SETUP), Witness::start());
    let output =
        lab(&["--script", script.path(), "-n", "4", "--json", "-", &witness.url("/")]).output().unwrap();
    let figures = from_json(&String::from_utf8(output.stdout).unwrap()).unwrap();
    assert_eq!(figures.requests, 4);
    assert!(String::from_utf8(output.stderr).unwrap().contains("4 of 4 in true"));
}

#[test]
fn thread_stop_ends_the_thread() {
    let script = Script::new(
        "stop.lua",
        r#"
local counter = 1

function response()
   if counter == 10 then
      wrk.thread:stop()
   end
   counter = counter + 1
end
"#,
    );
    let (figures, status) = run(&script, "-d 1h -c 1", &Witness::start().url("/"));
    assert_eq!((status, figures.requests), (0, 10));
}

#[test]
fn thread_addr_selects_the_server() {
    let (one, other) = (Witness::start(), Witness::start());
    let text = r#"
local addrs = nil

function setup(thread)
   if not addrs then
      addrs = wrk.lookup("127.0.0.1", PORT)
      for i = #addrs, 1, -1 do
         if not wrk.connect(addrs[i]) then
            table.remove(addrs, i)
         end
      end
   end
   thread.addr = addrs[1]
end

function init(args)
   local msg = "thread addr: %s"
   print(msg:format(wrk.thread.addr))
end
"#;
    let script = Script::new("addr.lua", &text.replace("PORT", &other.port.to_string()));
    let output = lab(&["--script", script.path(), "-n", "5", "-c", "2", &one.url("/")]).output().unwrap();
    let out = String::from_utf8(output.stdout).unwrap();
    assert!(out.starts_with(&format!("thread addr: 127.0.0.1:{}\n", other.port)), "{out}");
    // The Host field still names the host in the URL.
    let expected = format!("GET / HTTP/1.1\nHost: 127.0.0.1:{}\n\n", one.port);
    assert_eq!((one.requests().len(), other.requests()), (0, vec![expected; 5]));
}

#[test]
fn each_startup_error_is_one_line() {
    let witness = Witness::start();
    let error_of = |name: &str, text: &str| {
        let script = Script::new(name, text);
        let error = refused(&["--script", script.path(), &witness.url("/")]);
        assert_eq!(error.lines().count(), 1, "{error}");
        error.trim_end().strip_prefix("thalweg-lab: ").unwrap().to_owned()
    };
    assert_eq!(error_of("syntax.lua", "x = 1\nx ="), "syntax.lua:2: unexpected symbol near '<eof>'");
    assert_eq!(
        error_of("nil.lua", "\nfunction init()\n   local a\n   a.b = 1\nend"),
        "nil.lua:4: attempt to index local 'a' (a nil value)"
    );
    assert_eq!(
        error_of("nothing.lua", "function request() end"),
        "nothing.lua: request() returned a nil instead of a string"
    );
    assert_eq!(error_of("late.lua", "\n\nwhile true do end"), "late.lua:3: takes longer than 5s");
    let lookup = error_of("lookup.lua", "function setup(thread)\n   wrk.lookup('127.0.0.1', 'gopher')\nend");
    assert_eq!(lookup, "lookup.lua:2: \"gopher\" is not a service: write http, https or a port");
    let moved = error_of("moved.lua", "\nfunction setup(thread)\n   thread:set('a', print)\nend");
    assert_eq!(moved, "moved.lua:3: cannot transfer a function between threads");
    let formatted = error_of("format.lua", "\nprint(('%d'):format('a'))");
    assert!(formatted.starts_with("format.lua:2: bad argument #"), "{formatted}");
    assert!(
        refused(&["--script", "/nowhere.lua", &witness.url("/")])
            .starts_with("thalweg-lab: /nowhere.lua: No such file")
    );
    assert_eq!(witness.requests().len(), 0);
}

#[test]
fn script_error_ends_the_run() {
    let witness = Witness::start();
    let script = Script::new(
        "fails.lua",
        "local count = 0\nfunction response()\n   count = count + 1\n   if count == 3 then error('enough') end\nend",
    );
    let (figures, status) = run(&script, "-d 1h -c 1", &witness.url("/"));
    assert_eq!((status, figures.requests, counts(&figures)), (1, 3, vec![(ErrorKind::Script, 1)]));
    assert_eq!(figures.examples[&ErrorKind::Script].1, "fails.lua:4: enough");
    let script = Script::new("done.lua", "function done()\n   error('no end')\nend");
    let output = lab(&["--script", script.path(), "-n", "1", &witness.url("/")]).output().unwrap();
    let err = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), &*err), (Some(1), "thalweg-lab: done.lua:2: no end\n"));
}

#[test]
fn non_idempotent_request_is_not_retried() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let requests = Arc::new(Mutex::new(Vec::new()));
    let all = Arc::clone(&requests);
    thread::spawn(move || {
        for stream in listener.incoming() {
            // Respond to the first request on each connection; read the next one and never respond.
            let mut stream = stream.unwrap();
            let mut bytes = [0; 1024];
            for answer in ["HTTP/1.1 204 No Content\r\n\r\n", ""] {
                let length = stream.read(&mut bytes).unwrap();
                if length == 0 {
                    break;
                }
                all.lock().unwrap().push(String::from_utf8_lossy(&bytes[..length]).into_owned());
                stream.write_all(answer.as_bytes()).unwrap();
            }
        }
    });
    let script = Script::new("repeat.lua", POST);
    let (figures, _) = run(&script, "-n 3 -c 1", &url);
    assert_eq!(
        (figures.requests, figures.reconnects, counts(&figures)),
        (3, 0, vec![(ErrorKind::NoHead, 1)])
    );
    assert_eq!(requests.lock().unwrap().len(), 3);
}
