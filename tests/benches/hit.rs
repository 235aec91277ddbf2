//! The cost of a hit: CPU time per request and requests per second, beside Debian's nginx on the same files.
//!
//! Both servers have one core, the same congestion control (the system's), keep-alive, no log. They take turns, each
//! first in every other round, so that a machine whose speed drifts drifts for both. nginx is also the edge's backend:
//! what the edge serves are nginx's own responses, from memory.
//!
//! The client never sleeps (`support::never_sleep`).

mod support;

use std::net::SocketAddr;
use std::path::Path;
use std::time::Instant;

use anyhow::{Result, ensure};
use support::{Discarding, Scratch, Server};

const CONNECTIONS: usize = 64;
const ROUNDS: usize = 11;
/// Content bytes, and requests in a round: each round takes some tenths of a second of CPU time.
const SIZES: [(&str, u64, usize); 4] = [
    ("1 KB", 1_000, 30_000),
    ("100 KB", 100_000, 12_000),
    ("1.2 MB", 1_200_000, 2_400),
    ("5 MB", 5_000_000, 800),
];

fn main() -> Result<()> {
    support::leave_server_core()?;
    let scratch = Scratch::new("bench-hit")?;
    for (_, size, _) in SIZES {
        let content: Vec<u8> = (0..size).map(|at| (at ^ (at >> 8)) as u8).collect();
        std::fs::write(scratch.0.join(size.to_string()), content)?;
    }
    let address = support::free_address()?;
    let nginx = support::start_nginx(&scratch.0, &nginx_config(&scratch.0, address), address)?;
    let edge = support::start_edge(address)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        tokio::spawn(support::never_sleep());
        compare(&nginx, &edge).await
    })
}

fn nginx_config(directory: &Path, address: SocketAddr) -> String {
    let directory = directory.display();
    format!(
        "daemon off; worker_processes 1; pid {directory}/nginx.pid; user root;
         events {{ worker_connections 1024; }}
         http {{
           access_log off; sendfile on; tcp_nopush on; keepalive_requests 1000000000; keepalive_timeout 600;
           open_file_cache max=100; etag on; add_header Cache-Control max-age=3600;
           client_body_temp_path {directory}; proxy_temp_path {directory}; fastcgi_temp_path {directory};
           uwsgi_temp_path {directory}; scgi_temp_path {directory};
           server {{ listen {address}; root {directory}; }}
         }}"
    )
}

async fn compare(nginx: &Server, edge: &Server) -> Result<()> {
    println!("a hit, {CONNECTIONS} connections, {ROUNDS} rounds in turn: median (lowest–highest)");
    println!("{:>8} {:>30} {:>30} {:>16} {:>22}", "", "nginx", "thalweg", "ratio of CPU", "requests/s n, t");
    let mut above = Vec::new();
    for (name, size, requests) in SIZES {
        let mut figures: [Vec<f64>; 4] = Default::default();
        let mut ratios = Vec::new();
        for round in 0..=ROUNDS {
            let of_nginx = measure(nginx, size, requests);
            let of_edge = measure(edge, size, requests);
            let ((nginx_us, nginx_rate), (edge_us, edge_rate)) = if round % 2 == 0 {
                (of_nginx.await?, of_edge.await?)
            } else {
                let of_edge = of_edge.await?;
                (of_nginx.await?, of_edge)
            };
            // The first round fills the caches of both.
            if round > 0 {
                for (list, figure) in figures.iter_mut().zip([nginx_us, edge_us, nginx_rate, edge_rate]) {
                    list.push(figure);
                }
                ratios.push(edge_us / nginx_us);
            }
        }
        let [nginx_us, edge_us, nginx_rate, edge_rate] = figures.each_mut().map(|list| support::spread(list));
        let ratio = support::spread(&mut ratios);
        let micros = |(median, low, high): (f64, f64, f64)| format!("{median:.1} µs ({low:.1}–{high:.1})");
        let percent = |(median, low, high): (f64, f64, f64)| format!("{median:.2} ({low:.2}–{high:.2})");
        println!(
            "{name:>8} {:>30} {:>30} {:>16} {:>10.0} {:>10.0}",
            micros(nginx_us),
            micros(edge_us),
            percent(ratio),
            nginx_rate.0,
            edge_rate.0
        );
        if ratio.0 > 1.0 {
            above.push(name);
        }
    }
    ensure!(above.is_empty(), "a hit costs more than nginx's at {}", above.join(", "));
    Ok(())
}

/// CPU time per request in microseconds, and requests per second.
async fn measure(server: &Server, size: u64, requests: usize) -> Result<(f64, f64)> {
    let mut connections = Vec::new();
    for _ in 0..CONNECTIONS {
        connections.push(Discarding::connect(server.address).await?);
    }
    let request = format!("GET /{size} HTTP/1.1\r\nHost: {}\r\n\r\n", server.address);
    let (cpu, begun) = (server.cpu_ns(), Instant::now());
    let each = requests / CONNECTIONS;
    let mut running = tokio::task::JoinSet::new();
    for mut connection in connections {
        let request = request.clone();
        running.spawn(async move {
            for _ in 0..each {
                connection.exchange(request.as_bytes(), size).await?;
            }
            anyhow::Ok(())
        });
    }
    while let Some(ended) = running.join_next().await {
        ended??;
    }
    let requests = (each * CONNECTIONS) as f64;
    let cpu_us = (server.cpu_ns() - cpu) as f64 / 1000.0;
    Ok((cpu_us / requests, requests / begun.elapsed().as_secs_f64()))
}
