//! Client geolocation tests: policies that read MaxMind databases.

#![allow(clippy::unwrap_used)]

use std::net::Ipv4Addr;
use std::path::PathBuf;

use thalweg_edge::{BindError, Config, Edge, GeoError, LoadError};
use tokio::net::TcpSocket;

use crate::policy::File;
use crate::support::mmdb::{Data, database};
use crate::support::{Backend, Client, TestEdge, config};

const POLICY: &str = r#"vcl 4.1;
backend none none;
sub vcl_recv { return (synth(200)); }
sub vcl_synth {
    set resp.http.place = client.geo.city + "/" + client.geo.continent_code + "/" + client.geo.country_code + "/"
        + client.geo.country_name + "/" + client.geo.latitude + "/" + client.geo.longitude + "/" + client.geo.metro_code
        + "/" + client.geo.postal_code + "/" + client.geo.region;
    set resp.http.network = client.as.number + "/" + client.as.name;
    if (!client.geo.country_code) { set resp.http.unknown = "yes"; }
    return (deliver);
}"#;

fn city<'a>(code: &'a str, country: &'a str, city: &'a str) -> Data<'a> {
    let named = |name| ("names", Data::Map(vec![("de", Data::Text("anders")), ("en", Data::Text(name))]));
    Data::Map(vec![
        ("continent", Data::Map(vec![("code", Data::Text("EU"))])),
        ("country", Data::Map(vec![("iso_code", Data::Text(code)), named(country)])),
        ("city", Data::Map(vec![named(city)])),
        (
            "location",
            Data::Map(vec![
                ("latitude", Data::Double(60.39)),
                ("longitude", Data::Double(-5.32)),
                ("metro_code", Data::Short(7)),
            ]),
        ),
        ("postal", Data::Map(vec![("code", Data::Text("5003"))])),
        ("subdivisions", Data::List(vec![Data::Map(vec![("iso_code", Data::Text("46"))])])),
    ])
}

fn network(number: u32, name: &str) -> Data<'_> {
    Data::Map(vec![
        ("autonomous_system_number", Data::Number(number)),
        ("autonomous_system_organization", Data::Text(name)),
    ])
}

/// Returns the edge's response to a client at `address`.
async fn geo_of(edge: &TestEdge, address: [u8; 4]) -> String {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind((Ipv4Addr::from(address), 0).into()).unwrap();
    let mut client = Client::new(socket.connect(edge.address).await.unwrap());
    client.request("GET", "/", "").await;
    let response = client.response().await;
    let field = |name| response.field(name).unwrap_or("-").to_owned();
    format!("{} {} {}", field("place"), field("network"), field("unknown"))
}

const UNKNOWN: &str = "////0.000/0.000/0// 0/ yes";

#[tokio::test]
async fn policy_reads_city_and_network_and_reload_reads_changed_file() {
    let policy = File::new(POLICY);
    let cities = File::new(database(
        "GeoLite2-City",
        &[
            ("127.0.0.4/30", city("NO", "Norway", "Bergen")),
            ("127.0.0.9/32", Data::Map(vec![("country", Data::Map(vec![("iso_code", Data::Text("SE"))]))])),
            ("2001:db8::/32", city("IS", "Iceland", "Akureyri")),
        ],
    ));
    let networks = File::new(database(
        "GeoLite2-ASN",
        &[("127.0.0.0/29", network(64_496, "An organization of a long name"))],
    ));
    let backend = Backend::new().await;
    let geoip = vec![cities.0.clone(), networks.0.clone()];
    let edge =
        Edge::bind(Config { geoip, policy: Some(policy.0.clone()), ..config(backend.address) }).unwrap();
    let policies = edge.policies();
    let edge = TestEdge::run(edge);
    let bergen = "Bergen/EU/NO/Norway/60.390/-5.320/7/5003/46 64496/An organization of a long name -";
    assert_eq!(geo_of(&edge, [127, 0, 0, 4]).await, bergen);
    assert_eq!(geo_of(&edge, [127, 0, 0, 7]).await, bergen);
    assert_eq!(
        geo_of(&edge, [127, 0, 0, 1]).await,
        UNKNOWN.replace(" 0/ ", " 64496/An organization of a long name ")
    );
    assert_eq!(geo_of(&edge, [127, 0, 0, 9]).await, "//SE//0.000/0.000/0// 0/ -");
    assert_eq!(geo_of(&edge, [127, 0, 0, 10]).await, UNKNOWN);

    std::fs::write(
        &cities.0,
        database("GeoLite2-City", &[("127.0.0.9/32", city("DK", "Denmark", "Aarhus"))]),
    )
    .unwrap();
    assert_eq!(geo_of(&edge, [127, 0, 0, 4]).await, bergen);
    policies.load("second", &policy.0, false).await.unwrap();
    policies.activate("second").unwrap();
    assert_eq!(geo_of(&edge, [127, 0, 0, 9]).await, "Aarhus/EU/DK/Denmark/60.390/-5.320/7/5003/46 0/ -");

    // A database damaged after loading is reported, and the loaded data stays in use.
    std::fs::write(&cities.0, "half of it").unwrap();
    let error = policies.load("third", &policy.0, false).await.unwrap_err();
    assert!(matches!(error, LoadError::Geo(_)), "{error}");
    assert!(error.to_string().contains(cities.0.to_str().unwrap()), "{error}");
    assert_eq!(geo_of(&edge, [127, 0, 0, 9]).await, "Aarhus/EU/DK/Denmark/60.390/-5.320/7/5003/46 0/ -");
    edge.stop().await;
}

#[tokio::test]
async fn lookup_without_database_is_empty_and_policy_load_warns() {
    let policy = File::new(POLICY);
    let backend = Backend::new().await;
    let edge = Edge::bind(Config { policy: Some(policy.0.clone()), ..config(backend.address) }).unwrap();
    let warnings = edge.policies().load("second", &policy.0, false).await.unwrap().to_string();
    assert!(warnings.contains("client.as.number is always 0: no database is configured"), "{warnings}");
    let edge = TestEdge::run(edge);
    assert_eq!(geo_of(&edge, [127, 0, 0, 4]).await, UNKNOWN);
    edge.stop().await;
}

#[tokio::test]
async fn edge_does_not_start_without_configured_databases() {
    let bind = |path: PathBuf| -> GeoError {
        let config = Config { geoip: vec![path], ..config((Ipv4Addr::LOCALHOST, 1).into()) };
        match Edge::bind(config) {
            Err(BindError::Geo(error)) => error,
            other => panic!("{other:?}"),
        }
    };
    let missing = bind("/nosuch/city.mmdb".into()).to_string();
    assert_eq!(missing, "cannot read database /nosuch/city.mmdb: No such file or directory (os error 2)");
    let none = File::new("no database");
    let error = bind(none.0.clone()).to_string();
    assert!(error.starts_with(&format!("{} is not a MaxMind database: ", none.0.display())), "{error}");
    // The file is truncated within its data section.
    let whole = database("GeoLite2-City", &[("192.0.2.0/24", city("NO", "Norway", "Bergen"))]);
    let cut = File::new(&whole[..whole.len() / 2]);
    let error = bind(cut.0.clone()).to_string();
    assert!(error.starts_with(&format!("{} is not a MaxMind database: ", cut.0.display())), "{error}");
}
