//! Dashboard queries, with macros and variables replaced as by Grafana's ClickHouse plugin: each
//! query must return rows without missing values.

use serde_json::Value;

use super::*;

#[test]
fn every_dashboard_query_returns_complete_rows() {
    let clickhouse = services::ClickHouse::start();
    let server = Server::at(&clickhouse.url()).unwrap();
    schema::apply(&server).unwrap();
    let time = now_unix_us();
    let mut sink = ClickHouseSink::at(&clickhouse.url()).unwrap();
    (0..4).for_each(|index| sink.store(&batch(index, time)).unwrap());
    let dashboard: Value =
        serde_json::from_str(include_str!("../../../schema/grafana/thalweg.json")).unwrap();
    let since = time / 1_000_000 - 3_600;
    let panels = dashboard["panels"].as_array().unwrap();
    for panel in panels {
        let title = panel["title"].as_str().unwrap();
        let query = replaced(panel["targets"][0]["rawSql"].as_str().unwrap(), since, since + 7_200);
        let answer = server.query(&query, "JSONCompactEachRow");
        let answer = answer.unwrap_or_else(|error| panic!("{title}: {}\n{query}", error.cause));
        let rows = serde_json::Deserializer::from_slice(&answer).into_iter::<Vec<Value>>();
        let rows: Vec<_> = rows.map(Result::unwrap).collect();
        // A percentile of no values is NaN, which is null in JSON.
        let is_whole = |row: &Vec<Value>| !row.iter().any(Value::is_null);
        assert!(!rows.is_empty() && rows.iter().all(is_whole), "{title}: {rows:?}");
    }
    for variable in dashboard["templating"]["list"].as_array().unwrap() {
        if variable["type"] == "query" {
            let answer = server.query(variable["query"].as_str().unwrap(), "TabSeparated").unwrap();
            assert!(matches!(&*answer, b"DE\nFR\nUS-CA\n" | b"bbr\ncubic\n"), "{answer:?}");
        }
    }
}

fn replaced(query: &str, since: u64, until: u64) -> String {
    let mut query = query
        .replace("${region:singlequote}", "'DE','FR'")
        .replace("${congestion_control:singlequote}", "'bbr','cubic'");
    let macros =
        [("$__timeFilter_ms(", "fromUnixTimestamp64Milli", "000"), ("$__timeFilter(", "toDateTime", "")];
    for (name, function, zeros) in macros {
        while let Some(at) = query.find(name) {
            let inside = at + name.len();
            let mut depth = 1;
            let length = query[inside..]
                .find(|c| {
                    depth += i32::from(c == '(') - i32::from(c == ')');
                    depth == 0
                })
                .unwrap();
            let column = query[inside..inside + length].to_owned();
            let filter =
                format!("{column} >= {function}({since}{zeros}) AND {column} <= {function}({until}{zeros})");
            query.replace_range(at..=inside + length, &filter);
        }
    }
    assert!(!query.contains('$'), "{query}");
    query
}
