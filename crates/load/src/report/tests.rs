//! Tests that merging is exact and JSON is lossless for arbitrary measurements.

use expect_test::expect;
use proptest::prelude::*;

use super::super::figures::Model;
use super::*;

/// A measurement.
#[derive(Debug, Clone)]
enum Measured {
    Time(Time, u64),
    Error(ErrorKind, u64, String),
    Request(u16, u64, u64),
    Process(u64, u64),
}

fn measured() -> impl Strategy<Value = Measured> {
    let time = (prop::sample::select(Time::ALL), 0..2 * TIME_US_MAX);
    let error = (prop::sample::select(ErrorKind::ALL), 0u64..5, "[a-z\"\\\\é]{0,3}");
    let request = (100u16..600, 0u64..u64::from(u32::MAX), 0u64..9);
    prop_oneof![
        time.prop_map(|(time, value_us)| Measured::Time(time, value_us)),
        error.prop_map(|(kind, at_us, detail)| Measured::Error(kind, at_us, detail)),
        request.prop_map(|(status, bytes, second)| Measured::Request(status, bytes, second)),
        (0u64..1000, 0u64..1000).prop_map(|(begin_us, spent_us)| Measured::Process(begin_us, spent_us)),
    ]
}

fn run() -> Run {
    let model = Model::Closed;
    Run { model, urls: vec!["http://a/".to_owned()], arguments: vec!["load".to_owned()] }
}

fn record(figures: &mut Figures, measured: &Measured) {
    match measured {
        Measured::Time(time, value_us) => figures.record(*time, *value_us),
        Measured::Error(kind, at_us, detail) => figures.fail(*kind, *at_us, detail),
        Measured::Request(status, bytes, second) => {
            *figures.statuses.entry(*status).or_default() += 1;
            figures.begun += 2;
            figures.requests += 1;
            figures.content_bytes += bytes;
            let second = figures.second(*second);
            second.requests += 1;
            second.content_bytes += bytes;
            second.ttfb.record(*bytes);
            figures.record_goodput(*bytes);
            let viewers = figures.viewers.get_or_insert_default();
            viewers.chunks += bytes;
            viewers.totals.stalled_us += 1;
        }
        Measured::Process(begin_us, spent_us) => {
            let period = Period { begin_us: *begin_us, end_us: begin_us + spent_us };
            figures.merge(&Figures { period: Some(period), ..Figures::default() });
            figures.runs.insert(begin_us << 10 | spent_us, run());
            figures.clients += 3;
            figures.unsent += 1;
            figures.reconnects += 1;
            figures.cpu_us += spent_us;
        }
    }
}

proptest! {
    #[test]
    fn merged_figures_equal_those_of_one_process(
        all in prop::collection::vec((measured(), 0usize..4), 0..60),
        backwards in any::<bool>(),
    ) {
        let mut one = Figures::default();
        let mut parts = vec![Figures::default(); 4];
        for (measured, part) in &all {
            record(&mut one, measured);
            record(&mut parts[*part], measured);
        }
        if backwards {
            parts.reverse();
        }
        let mut merged = Figures::default();
        for part in &parts {
            merged.merge(&from_json(&to_json(part)).unwrap());
        }
        prop_assert_eq!(&merged, &one);
        prop_assert_eq!(to_json(&merged), to_json(&one));
        prop_assert_eq!(to_csv(&merged), to_csv(&one));
        prop_assert_eq!(to_table(&merged), to_table(&one));
        prop_assert_eq!(from_json(&to_json(&one)).unwrap(), one);
    }
}

fn sample() -> Figures {
    let mut figures = Figures {
        period: Some(Period { begin_us: 1_000_000, end_us: 3_500_000 }),
        runs: [(7, run())].into(),
        clients: 2,
        begun: 1002,
        requests: 1000,
        content_bytes: 1_000_000,
        cpu_us: 50_000,
        ..Figures::default()
    };
    (1..=1000).for_each(|value_us| figures.record(Time::Ttfb, value_us));
    figures.record(Time::Connect, 1500);
    figures.statuses.insert(200, 999);
    figures.statuses.insert(503, 1);
    figures.fail(ErrorKind::Status5xx, 7, "503 of /a");
    figures
}

#[test]
fn table_and_csv_have_counts_and_percentiles() {
    expect![[r#"
        1000 requests in 2.50s by 2 clients: 400.0/s, 977KiB of content, 3.20Mbit/s
        0.05s of processor time here: 50.00us per request
        2 requests were in flight when time was up

                 count    mean     p50     p95     p99   p99.9     max
        connect      1  1.50ms  1.50ms  1.50ms  1.50ms  1.50ms  1.50ms
        ttfb      1000   501us   500us   950us   990us   999us  1.00ms

        responses: 999 of 200, 1 of 503
        errors: 1 status5xx         503 of /a
    "#]]
    .assert_eq(&to_table(&sample()));
    expect![[r#"
        time,count,mean_us,p50_us,p95_us,p99_us,p99.9_us,max_us
        connect,1,1500.0,1500,1500,1500,1500,1500
        ttfb,1000,500.5,500,950,990,999,1000
    "#]]
    .assert_eq(&to_csv(&sample()));
}

#[test]
fn foreign_json_is_rejected() {
    let error = |text: &str| format!("{:#}", from_json(text).unwrap_err());
    expect!["not a report of thalweg-lab load: missing field `thalweg_lab_load` at line 1 column 2"]
        .assert_eq(&error("{}"));
    let json = to_json(&sample());
    expect!["report has version 3, but this program reads version 2"]
        .assert_eq(&error(&json.replacen(": 2,", ": 3,", 1)));
    let histogram = wire_times(sample().time(Time::Connect).unwrap()).histogram;
    expect!["times.connect: histogram is not base64: Invalid symbol 33, offset 0."]
        .assert_eq(&error(&json.replace(&histogram, "!")));
    let foreign = wire_times(&Histogram::new(2).unwrap()).histogram;
    expect!["times.connect: histogram bounds must be 1 to 3600000000, with 3 significant digits"]
        .assert_eq(&error(&json.replace(&histogram, &foreign)));
}

#[test]
fn incompatible_figures_are_not_merged() {
    let one = sample();
    assert!(one.check_merge(&Figures::default()).is_ok());
    expect!["run 0000000000000007 has already been merged"].assert_eq(&one.check_merge(&one).unwrap_err());
    let mut open = sample();
    open.runs = [(8, Run { model: Model::Open, ..run() })].into();
    expect!["times of the closed model and the open model are not comparable"]
        .assert_eq(&one.check_merge(&open).unwrap_err());
}
