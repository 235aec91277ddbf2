//! `thalweg origin inspect`: prints what a presentation or file is, what an origin serves of it,
//! what is wrong, and how to repair it.

use std::fmt;
use std::fmt::Write as _;

use clap::Args;
use thalweg_cli::print_stdout;
use thalweg_origin::inspect::report::{EditReport, FileReport, Finding, Report, Served, TrackReport};
use thalweg_origin::inspect::{InspectError, inspect};
use thalweg_units::table::{Column, Table};
use thalweg_units::{Escaped, Span, bit_rate, or_dash, size};

/// Examples and notes printed after the help.
pub(crate) const HELP: &str = "\
Examples:
  thalweg origin inspect media/film                 a presentation: all files of its directory
  thalweg origin inspect media/film/video.mp4       one file
  thalweg origin inspect media/film --json | jq .faults

Reads headers and indexes, not the media. Exit status: 0 if there are no faults, 1 if there are
faults, 2 if PATH cannot be read.";

/// Arguments of `thalweg origin inspect`.
#[derive(Debug, Args)]
pub(crate) struct InspectArgs {
    /// A presentation's directory, or a file
    #[arg(value_name = "PATH", value_hint = clap::ValueHint::AnyPath)]
    path: String,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
    /// The origin's segment_target, for files without a segment index
    #[arg(long, value_name = "DURATION", default_value = "2s")]
    segment_target: Span,
}

/// Error for a presentation with faults, which are already printed.
#[derive(Debug)]
pub(crate) struct Faulty;

impl fmt::Display for Faulty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the presentation has faults")
    }
}

impl std::error::Error for Faulty {}

/// Inspects a path and prints the report.
///
/// # Errors
///
/// Returns [`InspectError`] if the path cannot be read, and [`Faulty`] if the report has faults.
pub(crate) fn run(args: &InspectArgs) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let report: Result<Report, InspectError> =
        runtime.block_on(inspect(&args.path, args.segment_target.duration));
    let report = report?;
    let text = if args.json { serde_json::to_string_pretty(&report)? + "\n" } else { format(&report) };
    print_stdout(&text);
    if report.faults.is_empty() { Ok(()) } else { Err(Faulty.into()) }
}

fn format(report: &Report) -> String {
    let mut out = String::new();
    if !report.files.is_empty() {
        let _ = writeln!(out, "{}", files(&report.files));
        let tracks = tracks(&report.files);
        if !tracks.is_empty() {
            let _ = writeln!(out, "{tracks}");
        }
    }
    if let Some(served) = &report.served {
        served_text(&mut out, served);
    } else {
        let _ = writeln!(out, "{}: nothing can be served\n", Escaped(&report.name));
    }
    findings(&mut out, "fault", &report.faults);
    findings(&mut out, "warning", &report.warnings);
    if report.faults.is_empty() && report.warnings.is_empty() {
        out.push_str("no faults found\n");
    }
    out
}

fn files(files: &[FileReport]) -> Table<'static> {
    let mut table = Table::new([Column::text("FILE"), Column::number("SIZE"), Column::text("BOXES")]);
    for file in files {
        let run = |run: &thalweg_origin::inspect::report::BoxRun| match run.count {
            1 => run.boxes.clone(),
            count => format!("{count}×({})", run.boxes),
        };
        let mut boxes: Vec<String> = file.boxes.iter().map(run).collect();
        if file.has_more_boxes {
            boxes.push(String::from("…"));
        }
        let boxes = if boxes.is_empty() { String::from("not MP4") } else { boxes.join(" ") };
        table.push([escaped(&file.file), size(file.size_bytes), escaped(&boxes)]);
    }
    table
}

/// Lists the tracks as the files describe them, with their edit lists.
fn tracks(files: &[FileReport]) -> Table<'static> {
    let mut table = Table::new([
        Column::text("FILE"),
        Column::number("ID"),
        Column::text("HANDLER"),
        Column::text("ENTRY"),
        Column::number("TIMESCALE"),
        Column::text("SAMPLES"),
        Column::text("EDITS"),
    ]);
    let all = files.iter().flat_map(|file| file.tracks.iter().map(move |track| (file, track)));
    for (file, track) in all {
        let TrackReport { id, handler, sample_entry, timescale, duration_s, edits } = track;
        let samples = match file.is_fragmented {
            Some(true) => String::from("in fragments"),
            _ => format!("{duration_s:.3}s in moov"),
        };
        let edits: Vec<String> = edits.iter().map(edit).collect();
        table.push([
            escaped(&file.file),
            id.to_string(),
            escaped(handler),
            or_dash(sample_entry.as_deref(), escaped),
            timescale.to_string(),
            samples,
            if edits.is_empty() { String::from("-") } else { edits.join(", ") },
        ]);
    }
    table
}

fn edit(edit: &EditReport) -> String {
    match edit.media_time_s {
        None => format!("{:.3}s empty", edit.duration_s),
        Some(start) => format!("from {start:.3}s"),
    }
}

fn served_text(out: &mut String, served: &Served) {
    for entry in &served.entries {
        let _ = writeln!(out, "entry {}", Escaped(entry));
    }
    let is_joined = !served.entries.is_empty();
    let mut table = Table::new([
        Column::text("TRACK"),
        Column::text("KIND"),
        Column::text("CODEC"),
        Column::text("FORMAT"),
        Column::text("LANG"),
        Column::number("AVERAGE"),
        Column::number("PEAK"),
        Column::number("SEGMENTS"),
        Column::number("LONGEST"),
        Column::number("START"),
        Column::number("END"),
        Column::number("GAPS"),
    ]);
    for track in &served.tracks {
        let of_file = |text: String| if is_joined { String::from("-") } else { text };
        let kind = if track.is_trick_play { "trick play" } else { track.kind };
        table.push([
            track.name.clone(),
            kind.to_owned(),
            track.codec.clone(),
            track.format.clone(),
            or_dash(track.language.as_deref(), escaped),
            bit_rate(track.bits_per_s as f64),
            bit_rate(track.bits_per_s_max as f64),
            of_file(track.segments.to_string()),
            of_file(format!("{:.3}s", track.segment_s_max)),
            of_file(format!("{:.3}s", track.start_s)),
            of_file(format!("{:.3}s", track.end_s)),
            of_file(track.gaps.to_string()),
        ]);
    }
    if !served.tracks.is_empty() {
        let _ = writeln!(out, "{table}");
    }
    for (id, group) in served.groups.iter().enumerate() {
        let language = group.language.as_deref().map(|l| format!(" {l}")).unwrap_or_default();
        let _ = writeln!(out, "group {id}: {}{language}: {}", group.kind, group.tracks.join(" < "));
    }
    let _ = writeln!(out, "served: {} and {}, {:.3} s\n", served.hls, served.dash, served.duration_s);
}

fn findings(out: &mut String, severity: &str, findings: &[Finding]) {
    for Finding { message, repair, .. } in findings {
        let _ = writeln!(out, "{severity}: {}", Escaped(message));
        for command in repair {
            let _ = writeln!(out, "  repair: {}", Escaped(command));
        }
    }
}

fn escaped(text: &str) -> String {
    Escaped(text).to_string()
}
