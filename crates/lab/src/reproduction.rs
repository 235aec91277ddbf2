//! `thalweg-lab reproduce`: reproduces published results and compares the measurements with the
//! published values.

use std::io::{Write, stderr};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use clap::{Args, ValueEnum, value_parser};
use rustix::process::{Pid, PidfdFlags, pidfd_open, pidfd_send_signal};
use thalweg_lab::cc;
use thalweg_lab::report::{self, cc::Publication};
use thalweg_lab::reproduce::edgio::networks::World;
use thalweg_lab::reproduce::{ALL, Published, edgio, lumen, outcomes, table, unified, varnish};
use thalweg_netem::signals::Signals;

use crate::WRONG_USE;
use crate::compare::{measure, program};
use crate::progress::words;
use crate::results::{self, Results, print};

/// Name that selects all publications.
const EVERY: &str = "all";
/// Maximum of `--runs`.
const RUNS_MAX: i64 = 1000;
/// Directory of unified's finished runs in the directory of results.
const FINISHED: &str = "runs";
/// Exit statuses above this value mean a signal: 128 plus its number.
const BY_SIGNAL: u8 = 128;

/// Arguments of `reproduce`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  thalweg-lab reproduce                          list what can be measured, and what is missing
  thalweg-lab reproduce varnish --quick          lowest and highest loss, smaller chunk: a minute
  thalweg-lab reproduce varnish --out report     in full: 2,400 samples, about an hour
  thalweg-lab reproduce lumen --quick            joiners, chunks over two tiers, a script, 60 viewers: a minute
  thalweg-lab reproduce lumen --out report       in full, up to 50,000 viewers: ten minutes
  thalweg-lab reproduce unified --quick          an S3 server, two formats, 14 users, nginx: a minute
  thalweg-lab reproduce unified --out report     in full, 256 runs: seven hours; continues a series that was ended
  thalweg-lab reproduce edgio --quick            24 networks, two PoPs of two edges, a controller: three minutes
  thalweg-lab reproduce edgio --out report       in full, with proofs: a quarter of an hour
  thalweg-lab reproduce edgio --world identical --runs 20
                                                 24 equal networks, none of which BBR helps, 20 times: two hours
  thalweg-lab reproduce outcomes --quick         the edge's goodput beside the client's: a minute
  thalweg-lab reproduce varnish lumen --out out  one after another, each in its own directory, even if one fails
  thalweg-lab reproduce all --out reports        all of them

Prints each headline figure as published, as measured here, and their ratio. varnish, unified, edgio and outcomes need
root; lumen and unified require nginx, unified also ffmpeg, curl and the S3 servers (tools/setup bench), and lumen 18,000 open files
per process. --out writes report.html, its charts as SVG, samples.csv and summary.json, and for unified each finished run.

Exit status: 0 if everything was measured, whatever the figures; 1 if samples or a program failed, the machine was too busy to
trust the figures of varnish, edgio or outcomes, or a check of unified, edgio or outcomes failed; 2 for wrong usage or a machine that
lacks a requirement; 128 plus the signal number after SIGINT or SIGTERM (SIGHUP counts as SIGTERM), with the results so far
printed and written. For several publications, the highest of these.")]
pub(crate) struct Reproduce {
    /// Publications to reproduce, or all [default: list the publications]
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    /// Run a quick version with fewer measurements
    #[arg(long)]
    quick: bool,
    /// Directory for the report, the charts, the samples and the summary
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Networks of edgio: among identical and shared ones, none may be declared helped
    #[arg(long, value_enum, default_value_t)]
    world: World,
    /// Number of times to reproduce one publication; every run must succeed
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = value_parser!(u32).range(1..=RUNS_MAX))]
    runs: u32,
    /// Program to measure [default: thalweg beside this program, else in PATH]
    #[arg(long, value_name = "FILE")]
    thalweg: Option<PathBuf>,
    /// Directory of CMAF tracks for lumen's live channel
    #[arg(long, value_name = "DIR", default_value = "assets/sample")]
    media: PathBuf,
    /// Directory for unified's film and S3 servers' files, 13 GB, which later runs use again
    #[arg(long, value_name = "DIR", default_value = "target/unified")]
    cache: PathBuf,
}

pub(crate) fn reproduce(arguments: Reproduce) -> anyhow::Result<ExitCode> {
    match &arguments.names[..] {
        [] => Ok(list()),
        [name] if name != EVERY && arguments.runs > 1 => {
            let published = find(name)?;
            let run = |run| Job { published, directory: format!("run-{run}") };
            run_each(&arguments, &(1..=arguments.runs).map(run).collect::<Vec<_>>())
        }
        _ if arguments.runs > 1 => bail!("--runs repeats a single publication: name one"),
        [name] if name == EVERY => run_each(&arguments, &ALL.map(Job::once)),
        [name] => {
            let published = find(name)?;
            run_one(&arguments, published.name)
        }
        names => {
            let chosen =
                names.iter().map(|name| find(name).map(Job::once)).collect::<anyhow::Result<Vec<_>>>()?;
            run_each(&arguments, &chosen)
        }
    }
}

/// One of several measurements.
struct Job {
    published: Published,
    /// Directory for its results, below `--out`.
    directory: String,
}

impl Job {
    fn once(published: Published) -> Self {
        Self { published, directory: published.name.to_owned() }
    }
}

/// Finds a publication that can be measured.
fn find(name: &str) -> anyhow::Result<Published> {
    let Some(published) = ALL.iter().find(|published| published.name == name) else {
        let names: Vec<_> = ALL.iter().map(|published| published.name).collect();
        bail!("unknown publication {name:?}: expected {}, or {EVERY}", names.join(", "));
    };
    if let Some(missing) = published.missing {
        bail!("{}: cannot be measured yet: needs {missing}", published.name);
    }
    Ok(*published)
}

fn run_one(arguments: &Reproduce, name: &str) -> anyhow::Result<ExitCode> {
    let thalweg = program(arguments.thalweg.as_deref())?;
    results::create_directory(arguments.out.as_deref())?;
    let results = match name {
        "lumen" => run_lumen(arguments, thalweg)?,
        "unified" => run_unified(arguments, thalweg)?,
        "edgio" => run_edgio(arguments, &thalweg)?,
        "outcomes" => run_outcomes(arguments, &thalweg)?,
        _ => run_varnish(arguments, &thalweg)?,
    };
    results.write(arguments.out.as_deref())
}

/// Estimates how long a reproduction takes.
fn estimate(arguments: &Reproduce, name: &str) -> Duration {
    let Reproduce { quick: is_quick, world, .. } = *arguments;
    match name {
        "lumen" => lumen::plan(is_quick).duration(),
        "unified" => unified::plan(is_quick).duration(),
        "edgio" => edgio::plan(world, is_quick).duration,
        "outcomes" => outcomes::plan(is_quick).duration(),
        _ => varnish::plan(is_quick).duration(),
    }
}

fn run_varnish(arguments: &Reproduce, thalweg: &Path) -> anyhow::Result<Results> {
    let report = compare(&varnish::plan(arguments.quick), thalweg)?;
    let headlines = varnish::headlines(&report);
    let publication = Publication {
        title: varnish::TITLE,
        open: varnish::OPEN,
        headlines: &headlines,
        ratio: Some(varnish::RATIO),
    };
    Ok(compared(&report, &publication, report.exit_status()))
}

fn run_outcomes(arguments: &Reproduce, thalweg: &Path) -> anyhow::Result<Results> {
    let report = compare(&outcomes::plan(arguments.quick), thalweg)?;
    let headlines = outcomes::headlines(&report);
    let publication =
        Publication { title: outcomes::TITLE, open: outcomes::OPEN, headlines: &headlines, ratio: None };
    let results = compared(&report, &publication, outcomes::exit_status(&report));
    let agreements = report::cc::agreements(&report);
    Ok(Results { table: format!("{agreements}\n{}", results.table), ..results })
}

/// Compares algorithms, showing the estimated duration and the progress.
fn compare(plan: &cc::Plan, thalweg: &Path) -> anyhow::Result<cc::Report> {
    let samples = plan.cells().count() * plan.samples;
    let (paths, lanes) = (plan.scenario.paths.len(), plan.lanes);
    log(&format!(
        "{samples} samples over {paths} paths with {lanes} lanes: about {}",
        words(plan.duration())
    ));
    measure(plan, thalweg)
}

/// Renders a publication that compares algorithms.
fn compared(report: &cc::Report, publication: &Publication<'_>, exit_status: u8) -> Results {
    use report::cc::{csv, json, page_of};
    let (headlines, open) = (publication.headlines, publication.open);
    Results {
        table: format!("{}\n{}\n{open}\n", report::cc::table(report), table(headlines)),
        page: page_of(report, publication),
        samples: csv(report),
        summary: json(report, headlines),
        exit_status,
    }
}

fn run_lumen(arguments: &Reproduce, thalweg: PathBuf) -> anyhow::Result<Results> {
    use report::lumen::{csv, json, page};
    let requirements = lumen::Requirements { thalweg, media: arguments.media.clone() };
    let log = timed_log(estimate(arguments, "lumen"));
    let outcome = lumen::run(&lumen::plan(arguments.quick), &requirements, &log)?;
    let (found, headlines) = (report::lumen::table(&outcome), table(&lumen::headlines(&outcome)));
    Ok(Results {
        table: format!("{found}\n{headlines}\n{}\n", lumen::OPEN),
        page: page(&outcome),
        samples: csv(&outcome),
        summary: json(&outcome),
        exit_status: outcome.exit_status(),
    })
}

fn run_unified(arguments: &Reproduce, thalweg: PathBuf) -> anyhow::Result<Results> {
    use report::unified::{csv, json, page};
    let requirements = unified::Requirements {
        thalweg,
        cache: arguments.cache.clone(),
        finished: arguments.out.as_ref().map(|directory| directory.join(FINISHED)),
    };
    let log = timed_log(estimate(arguments, "unified"));
    let outcome = unified::run(&unified::plan(arguments.quick), &requirements, &log)?;
    let (found, headlines) = (report::unified::table(&outcome), table(&outcome.headlines()));
    Ok(Results {
        table: format!("{found}\n{headlines}\n{}\n", unified::OPEN),
        page: page(&outcome),
        samples: csv(&outcome),
        summary: json(&outcome),
        exit_status: outcome.exit_status(),
    })
}

fn run_edgio(arguments: &Reproduce, thalweg: &Path) -> anyhow::Result<Results> {
    use report::edgio::{csv, json, page};
    let plan = edgio::plan(arguments.world, arguments.quick);
    let log = timed_log(plan.duration);
    let outcome = edgio::run(&plan, thalweg, &log)?;
    let (found, headlines) = (report::edgio::table(&outcome), table(&outcome.headlines()));
    Ok(Results {
        table: format!("{found}\n{headlines}\n{}\n", edgio::description(arguments.world)),
        page: page(&outcome),
        samples: csv(&outcome),
        summary: json(&outcome),
        exit_status: outcome.exit_status(),
    })
}

/// Prints a progress message.
fn log(what: &str) {
    let _ = writeln!(stderr(), "{what}");
}

/// Returns a function that prints progress messages with the time so far and the time left.
fn timed_log(estimate: Duration) -> impl Fn(&str) {
    let started = Instant::now();
    move |what| {
        let elapsed = started.elapsed();
        let left = estimate.saturating_sub(elapsed);
        log(&format!("{}, about {} to go: {what}", words(elapsed), words(left)));
    }
}

/// Measures publications one after another, each in a separate process, because an emulation
/// changes its process's namespaces. A failure does not end the series; a signal does. Prints how
/// each run ended, and returns the highest exit status.
fn run_each(arguments: &Reproduce, jobs: &[Job]) -> anyhow::Result<ExitCode> {
    let (runtime, mut signals) = Signals::install()?;
    runtime.block_on(async {
        let (mut worst, mut ends) = (0, Vec::new());
        for (index, Job { published: Published { name, title, missing }, directory }) in
            jobs.iter().enumerate()
        {
            print(&format!("{title}\n"));
            if let Some(missing) = missing {
                print(&format!("cannot be measured yet: needs {missing}\n\n"));
                continue;
            }
            let left = jobs[index..].iter().filter(|job| job.published.missing.is_none());
            let left: Duration = left.map(|job| estimate(arguments, job.published.name)).sum();
            log(&format!("{directory}: started; about {} to go for all", words(left)));
            let started = Instant::now();
            let status = attend(spawn_one(arguments, name, directory)?, &mut signals).await?;
            print("\n");
            ends.push(format!("{directory:<9}{} after {}", ending(status), words(started.elapsed())));
            worst = worst.max(status);
            if status >= BY_SIGNAL {
                break;
            }
        }
        ends.iter().for_each(|end| log(end));
        Ok(ExitCode::from(worst))
    })
}

/// Describes how a run with this exit status ended.
fn ending(status: u8) -> String {
    match status {
        0 => "done".to_owned(),
        1 => "FAILED, or its figures cannot be trusted (see its output)".to_owned(),
        BY_SIGNAL.. => format!("ended by signal {}", status - BY_SIGNAL),
        _ => "DID NOT START (see its output)".to_owned(),
    }
}

/// Starts the process for one publication in its own process group, so that it receives a
/// terminal's signals only once, when they are forwarded.
fn spawn_one(arguments: &Reproduce, name: &str, results: &str) -> anyhow::Result<Child> {
    let own = std::env::current_exe().context("cannot locate this program's executable")?;
    let mut command = Command::new(&own);
    command.args(["reproduce", name]).args(arguments.quick.then_some("--quick"));
    command.arg("--media").arg(&arguments.media).arg("--cache").arg(&arguments.cache);
    if name == "edgio"
        && let Some(world) = arguments.world.to_possible_value()
    {
        command.arg("--world").arg(world.get_name());
    }
    if let Some(thalweg) = &arguments.thalweg {
        command.arg("--thalweg").arg(thalweg);
    }
    if let Some(directory) = &arguments.out {
        command.arg("--out").arg(directory.join(results));
    }
    command.stdin(Stdio::null()).process_group(0);
    command.spawn().with_context(|| own.display().to_string())
}

/// Waits for the process and forwards signals. Returns the higher of the process's exit status and
/// that of a forwarded signal.
async fn attend(mut child: Child, signals: &mut Signals) -> anyhow::Result<u8> {
    let handle =
        pidfd_open(Pid::from_child(&child), PidfdFlags::empty()).context("cannot open a process handle")?;
    let mut ended = tokio::task::spawn_blocking(move || child.wait());
    let mut by_signal = 0;
    loop {
        tokio::select! {
            status = &mut ended => return Ok(by_signal.max(exit_status(status??))),
            signal = signals.next() => {
                by_signal = signal_status(signal.as_raw());
                // Ignore the error: the process may have exited already.
                let _ = pidfd_send_signal(&handle, signal);
            }
        }
    }
}

/// Returns the exit status as a shell would report it.
fn exit_status(status: ExitStatus) -> u8 {
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    code.or_else(|| Some(signal_status(status.signal()?))).unwrap_or(WRONG_USE)
}

fn signal_status(signal: i32) -> u8 {
    u8::try_from(i32::from(BY_SIGNAL) + signal).unwrap_or(u8::MAX)
}

fn list() -> ExitCode {
    for Published { name, title, missing } in ALL {
        print(&format!("{name:<9}{title}\n"));
        if let Some(missing) = missing {
            print(&format!("{:<9}cannot be measured yet: needs {missing}\n", ""));
        }
    }
    ExitCode::SUCCESS
}
