use std::sync::Arc;
use bytes::Bytes;
use thalweg_cache::arena::SLAB_BYTES;
use thalweg_cache::freshness::Freshness;
use thalweg_cache::rules::Rules;
use thalweg_cache::storage::Selection;
use thalweg_cache::{Cache, Head, Lookup};
use thalweg_http::Fields;
use thalweg_http::cache_control::{CacheControl, RequestCacheControl};

fn head(length: u64) -> Head {
    let mut fields = Fields::new();
    fields.push("Cache-Control", "max-age=1000");
    let d = CacheControl::from_fields(&fields);
    let freshness = Freshness::of(200, &fields, &d, true, &Rules::default(), (0, 0));
    Head { status: 200, fields, withheld: Fields::new(), length: Some(length), freshness, selection: Selection::default(), private: None }
}

struct R(u64);
impl R { fn next(&mut self) -> u64 { self.0 ^= self.0 << 13; self.0 ^= self.0 >> 7; self.0 ^= self.0 << 17; self.0 } }

#[test]
fn churn() {
    let slabs: u64 = std::env::var("SLABS").ok().and_then(|v| v.parse().ok()).unwrap_or(16);
    let once: u64 = std::env::var("ONCE").ok().and_then(|v| v.parse().ok()).unwrap_or(50);
    let maxb: u64 = std::env::var("MAXB").ok().and_then(|v| v.parse().ok()).unwrap_or(32_000);
    let cat: f64 = std::env::var("CAT").ok().and_then(|v| v.parse().ok()).unwrap_or(20_000.0);
    let ops: u64 = std::env::var("OPS").ok().and_then(|v| v.parse().ok()).unwrap_or(1_000_000);
    let cache: Arc<Cache> = Cache::new(slabs * SLAB_BYTES as u64).unwrap();
    let content = Bytes::from(vec![7; maxb as usize + 100]);
    let mut r = R(12345);
    let (mut hits, mut passed) = (0u64, 0u64);
    let t = std::time::Instant::now();
    let (mut h0, mut p0) = (0, 0);
    let step = ops / 10;
    let head0 = head(0);
    for op in 0..ops {
        let key = if r.next() % 100 < once { format!("once{op}") } else {
            // log-uniform rank: zipf 1
            let u = (r.next() >> 11) as f64 / (1u64 << 53) as f64;
            format!("{}", cat.powf(u) as u64)
        };
        let mut hsh = 1469598103934665603u64; for b in key.bytes() { hsh = (hsh ^ u64::from(b)).wrapping_mul(1099511628211); }
        let len = 100 + hsh % maxb;
        match cache.look_up(&key, &Fields::new(), &RequestCacheControl::default(), 0) {
            Lookup::Hit(_) => hits += 1,
            Lookup::Miss(mut fill, _reader) => {
                fill.begin(Head { length: Some(len), ..head0.clone() }, 0);
                fill.append(content.slice(..len as usize), 0).unwrap();
                fill.complete();
                if cache.peek(&key, &Fields::new()).is_none() { passed += 1; }
            }
            other => panic!("{other:?}"),
        }
        if op % step == step - 1 {
            let used = cache.arena().slabs_max() - cache.arena().free_slabs();
            println!("{op}: stored {} used {used} live/used {:.2} hits {:.1}% passed {}", cache.stored(), cache.arena().live_bytes() as f64 / (used * SLAB_BYTES) as f64, (hits - h0) as f64 * 100.0 / step as f64, passed - p0);
            h0 = hits; p0 = passed;
        }
    }
    println!("{:?}", t.elapsed());
}
