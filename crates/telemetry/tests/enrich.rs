//! Client network tests: CSV prefixes, database look-ups, and reloading of changed files.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::PathBuf;

use expect_test::{Expect, expect};
use thalweg_telemetry::enrich::Networks;

use mmdb::{Data, database};

#[expect(
    dead_code,
    unreachable_pub,
    reason = "only the edge's tests use the whole module, from several others"
)]
#[path = "../../edge/tests/edge/support/mmdb.rs"]
mod mmdb;

/// A directory removed on drop.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("thalweg-enrich-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn file(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.0.join(name);
        fs::write(&path, content).unwrap();
        path
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn found(networks: &mut Networks, address: &str) -> String {
    let network = networks.find(address.parse().unwrap());
    format!("{:?} {:?}", network.asn, network.region.as_deref())
}

#[test]
fn longest_csv_prefix_wins() {
    let directory = Directory::new("csv");
    let csv = "prefix,asn,region\n# ours\n203.0.0.0/8,1,DE\n203.0.113.0/24,AS64500,DE-BY\n2001:db8::/32,64501,\n10.0.0.0/8,,lab\n";
    let csv = directory.file("networks.csv", csv);
    let mut networks = Networks::open(&[], Some(&csv)).unwrap();
    assert_eq!(found(&mut networks, "203.0.113.9"), "Some(64500) Some(\"DE-BY\")");
    assert_eq!(found(&mut networks, "203.1.1.1"), "Some(1) Some(\"DE\")");
    assert_eq!(found(&mut networks, "::ffff:203.1.1.1"), "Some(1) Some(\"DE\")");
    assert_eq!(found(&mut networks, "2001:db8:1::1"), "Some(64501) None");
    assert_eq!(found(&mut networks, "10.1.2.3"), "None Some(\"lab\")");
    assert_eq!(found(&mut networks, "192.0.2.1"), "None None");
}

fn check_fault(line: &str, expected: &Expect) {
    let directory = Directory::new("fault");
    let csv = directory.file("networks.csv", format!("prefix,asn,region\n203.0.113.0/24,1,DE\n{line}\n"));
    let fault = Networks::open(&[], Some(&csv)).unwrap_err().to_string();
    expected.assert_eq(fault.trim_start_matches(&*csv.display().to_string()));
}

#[test]
fn error_names_the_malformed_line() {
    check_fault(
        "203.0.113.1/24,1,DE",
        &expect![[r#":3: "203.0.113.1/24": bits after the prefix are set: write 203.0.113.0/24"#]],
    );
    check_fault("203.0.114.0/24,one,DE", &expect![[r#":3: "one": expected an autonomous system number"#]]);
    check_fault("203.0.114.0/24,1", &expect![":3: expected three fields: prefix,asn,region"]);
}

fn place(country: &'static str) -> Data<'static> {
    let subdivision = Data::Map(vec![("iso_code", Data::Text("CA"))]);
    Data::Map(vec![
        ("country", Data::Map(vec![("iso_code", Data::Text(country))])),
        ("subdivisions", Data::List(vec![subdivision])),
    ])
}

#[test]
fn databases_fill_in_what_the_csv_lacks() {
    let directory = Directory::new("mmdb");
    let cities = directory.file("city.mmdb", database("GeoLite2-City", &[("203.0.0.0/8", place("US"))]));
    let number = Data::Map(vec![("autonomous_system_number", Data::Number(64_502))]);
    let numbers = directory.file("asn.mmdb", database("GeoLite2-ASN", &[("203.0.0.0/8", number)]));
    let csv = directory.file("networks.csv", "203.0.113.0/24,7,\n");
    let mut networks = Networks::open(&[cities.clone(), numbers], Some(&csv)).unwrap();
    assert_eq!(found(&mut networks, "203.0.113.9"), "Some(7) Some(\"US-CA\")");
    assert_eq!(found(&mut networks, "203.0.114.9"), "Some(64502) Some(\"US-CA\")");
    assert_eq!(found(&mut networks, "198.51.100.1"), "None None");

    assert!(!networks.refresh().unwrap());
    fs::write(&cities, database("GeoLite2-City", &[("203.0.0.0/8", place("FRA"))])).unwrap();
    assert!(networks.refresh().unwrap());
    assert_eq!(found(&mut networks, "203.0.114.9"), "Some(64502) Some(\"FRA-CA\")");
    fs::write(&cities, "no database").unwrap();
    assert!(networks.refresh().is_err());
    assert_eq!(found(&mut networks, "203.0.114.9"), "Some(64502) Some(\"FRA-CA\")");
}
