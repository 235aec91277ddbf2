//! Hit ratios of the cache's eviction policy compared with LRU, CLOCK and SIEVE, on skewed media
//! traces.
//!
//! Each trace is generated from a fixed seed, so results are identical everywhere. A tenth of the
//! catalogue consists of playlists of 1 KB; the rest are segments of 100 KB to 5 MB, log-uniform in
//! size. Popularity is independent of size. The first fifth of a trace fills the cache and is not
//! counted in the hit ratios of requests and bytes.

#[path = "eviction/policies.rs"]
mod policies;
#[path = "eviction/traces.rs"]
mod traces;

use policies::{Clock, Lru, Policy, S3Fifo, Sieve};
use traces::Trace;

/// Cache sizes, in thousandths of the catalogue's bytes.
const SIZES: [u64; 4] = [2, 10, 50, 200];

fn main() {
    println!("hit ratio in percent, requests / bytes; cache size as part of the catalogue");
    println!("{:<36} {:>6} {:>13} {:>13} {:>13} {:>13}", "", "cache", "LRU", "CLOCK", "SIEVE", "thalweg");
    let mut below = Vec::new();
    for trace in Trace::all() {
        for size in SIZES {
            let cache_bytes = trace.catalogue_bytes / 1000 * size;
            let objects = trace.objects();
            let ratios = [
                measure(&mut Lru::new(cache_bytes, objects), &trace),
                measure(&mut Clock::new(cache_bytes, objects), &trace),
                measure(&mut Sieve::new(cache_bytes, objects), &trace),
                measure(&mut S3Fifo::new(cache_bytes, objects), &trace),
            ];
            let [lru, clock, sieve, ours] =
                ratios.map(|(r, b)| format!("{:.1} / {:.1}", 100.0 * r, 100.0 * b));
            let part = size as f64 / 10.0;
            println!("{:<36} {part:>5}% {lru:>13} {clock:>13} {sieve:>13} {ours:>13}", trace.name);
            if ratios[3].0 < ratios[0].0 {
                below.push(format!("{} at {part}%", trace.name));
            }
        }
    }
    assert!(below.is_empty(), "fewer hits than LRU: {}", below.join(", "));
}

/// Returns the hit ratios by requests and by bytes.
fn measure(policy: &mut impl Policy, trace: &Trace) -> (f64, f64) {
    let warm = trace.requests.len() / 5;
    let (mut hits, mut hit_bytes, mut bytes) = (0u64, 0u64, 0u64);
    for (at, object) in trace.requests.iter().enumerate() {
        let object_bytes = trace.bytes[*object as usize];
        let is_hit = policy.request(*object, object_bytes);
        if at >= warm {
            hits += u64::from(is_hit);
            hit_bytes += if is_hit { object_bytes } else { 0 };
            bytes += object_bytes;
        }
    }
    (hits as f64 / (trace.requests.len() - warm) as f64, hit_bytes as f64 / bytes as f64)
}
