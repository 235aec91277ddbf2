//! Bottleneck of one direction and its queue: a rattan cell that replays a trace or a constant
//! rate.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use rattan_core::cells::bandwidth::queue::{
    CoDelQueue, CoDelQueueConfig, DropTailQueue, DropTailQueueConfig, PacketQueue,
};
use rattan_core::cells::bandwidth::{BwReplayCell, BwReplayCellConfig, BwType};
use rattan_core::cells::{Cell, ControlInterface, Ingress, StdPacket};
use rattan_core::metal::io::af_packet::AfPacketDriver;
use rattan_core::netem_trace::Bandwidth;
use rattan_core::netem_trace::model::{BwTraceConfig, RepeatedBwPatternConfig, StaticBwConfig};
use rattan_core::radix::RattanRadix;

use super::Error;
use crate::scenario::{Capacity, Discipline, Queue};

/// Duration of a constant rate. A month is longer than any run.
const ENDLESS: Duration = Duration::from_secs(30 * 24 * 3600);

type SetRate = Box<dyn Fn(u64) -> Result<(), rattan_core::error::Error> + Send + Sync>;

/// The rate limit of one direction.
pub(super) struct Bottleneck {
    packets: Arc<AtomicU64>,
    dropped: Arc<AtomicU64>,
    set_rate: SetRate,
}

impl Bottleneck {
    /// Builds the cell `id`. Returns `None` and builds nothing if the rate is unlimited.
    pub(super) fn build(
        radix: &mut RattanRadix<AfPacketDriver>,
        id: &str,
        capacity: &Capacity,
        queue: Queue,
    ) -> Result<Option<Self>, Error> {
        let Some(trace) = trace(capacity) else { return Ok(None) };
        let bytes = usize::try_from(queue.bytes).expect("QUEUE_BYTES_MAX fits in usize");
        let built = match queue.discipline {
            Discipline::DropTail => {
                let config = DropTailQueueConfig::new(None, bytes, BwType::NetworkLayer);
                Self::build_with(radix, id, trace, DropTailQueue::new(config))
            }
            Discipline::CoDel => {
                let config = CoDelQueueConfig { byte_limit: Some(bytes), ..CoDelQueueConfig::default() };
                Self::build_with(radix, id, trace, CoDelQueue::new(config))
            }
        };
        built.map(Some)
    }

    fn build_with<Q: PacketQueue<StdPacket> + 'static>(
        radix: &mut RattanRadix<AfPacketDriver>,
        id: &str,
        trace: Box<dyn BwTraceConfig>,
        queue: Q,
    ) -> Result<Self, Error> {
        let [packets, dropped] = [(); 2].map(|()| Arc::new(AtomicU64::new(0)));
        let queue = CountingQueue { queue, dropped: dropped.clone() };
        let control = radix.build_cell(id.to_owned(), |runtime| {
            let _within = runtime.enter();
            let cell = BwReplayCell::new(trace.into_model(), queue, BwType::NetworkLayer)?;
            Ok(CountingCell {
                entry: Arc::new(Entry { inner: cell.sender(), packets: packets.clone() }),
                cell,
            })
        });
        let control = control.map_err(Error::Emulator)?;
        let set_rate: SetRate = Box::new(move |bits_per_s| {
            control.set_config(BwReplayCellConfig::new(constant(bits_per_s), None, None))
        });
        Ok(Self { packets, dropped, set_rate })
    }

    /// Returns the number of packets that arrived at the queue.
    pub(super) fn packets(&self) -> u64 {
        self.packets.load(Relaxed)
    }

    /// Returns the number of packets dropped by the queue.
    pub(super) fn dropped(&self) -> u64 {
        self.dropped.load(Relaxed)
    }

    /// Sets the rate in bits per second.
    pub(super) fn set_rate(&self, bits_per_s: u64) -> Result<(), rattan_core::error::Error> {
        (self.set_rate)(bits_per_s)
    }
}

/// A cell that counts arriving packets.
struct CountingCell<C: Cell<StdPacket>> {
    cell: C,
    entry: Arc<Entry<C::IngressType>>,
}

struct Entry<I> {
    inner: Arc<I>,
    packets: Arc<AtomicU64>,
}

impl<I: Ingress<StdPacket>> Ingress<StdPacket> for Entry<I> {
    fn enqueue(&self, packet: StdPacket) -> Result<(), rattan_core::error::Error> {
        self.packets.fetch_add(1, Relaxed);
        self.inner.enqueue(packet)
    }
}

impl<C: Cell<StdPacket>> Cell<StdPacket> for CountingCell<C> {
    type IngressType = Entry<C::IngressType>;
    type EgressType = C::EgressType;
    type ControlInterfaceType = C::ControlInterfaceType;

    fn sender(&self) -> Arc<Self::IngressType> {
        self.entry.clone()
    }

    fn receiver(&mut self) -> &mut C::EgressType {
        self.cell.receiver()
    }

    fn into_receiver(self) -> C::EgressType {
        self.cell.into_receiver()
    }

    fn control_interface(&self) -> Arc<C::ControlInterfaceType> {
        self.cell.control_interface()
    }
}

/// A queue that counts dropped packets.
struct CountingQueue<Q> {
    queue: Q,
    dropped: Arc<AtomicU64>,
}

impl<Q> CountingQueue<Q> {
    fn count(&self, dropped: usize) {
        self.dropped.fetch_add(dropped as u64, Relaxed);
    }
}

impl<Q: PacketQueue<StdPacket>> PacketQueue<StdPacket> for CountingQueue<Q> {
    type Config = Q::Config;

    fn configure(&mut self, config: Self::Config) {
        self.queue.configure(config);
    }

    fn enqueue(&mut self, packet: StdPacket) {
        let before = self.queue.length();
        self.queue.enqueue(packet);
        self.count(before + 1 - self.queue.length());
    }

    fn dequeue(&mut self) -> Option<StdPacket> {
        let before = self.queue.length();
        let packet = self.queue.dequeue();
        self.count(before - self.queue.length() - usize::from(packet.is_some()));
        packet
    }

    fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    fn get_extra_length(&self) -> usize {
        self.queue.get_extra_length()
    }

    fn get_front_size(&self) -> Option<usize> {
        self.queue.get_front_size()
    }

    fn length(&self) -> usize {
        self.queue.length()
    }
}

fn trace(capacity: &Capacity) -> Option<Box<dyn BwTraceConfig>> {
    match capacity {
        Capacity::Unlimited => None,
        Capacity::Rate(bits_per_s) => Some(constant(*bits_per_s)),
        Capacity::Trace(trace) => {
            let steps = trace.steps().iter().map(|step| at_rate(step.bits_per_s, step.duration));
            Some(repeating(steps.collect()))
        }
    }
}

fn constant(bits_per_s: u64) -> Box<dyn BwTraceConfig> {
    repeating(vec![at_rate(bits_per_s, ENDLESS)])
}

fn repeating(pattern: Vec<Box<dyn BwTraceConfig>>) -> Box<dyn BwTraceConfig> {
    Box::new(RepeatedBwPatternConfig::new().pattern(pattern).count(0))
}

/// Builds a constant rate. Zero becomes one bit per second, because rattan divides by the rate.
fn at_rate(bits_per_s: u64, duration: Duration) -> Box<dyn BwTraceConfig> {
    Box::new(StaticBwConfig::new().bw(Bandwidth::from_bps(bits_per_s.max(1))).duration(duration))
}

#[cfg(test)]
mod tests {
    use rattan_core::cells::Packet;

    use super::*;

    fn counting<Q: PacketQueue<StdPacket>>(queue: Q) -> CountingQueue<Q> {
        CountingQueue { queue, dropped: Arc::default() }
    }

    #[test]
    fn drops_by_a_full_queue_are_counted() {
        let config = DropTailQueueConfig::new(None, 3 * 86, BwType::NetworkLayer);
        let mut queue = counting(DropTailQueue::new(config));
        // The queue counts 86 bytes for each packet of 100 bytes, because it excludes the 14-byte
        // link header. Three packets fit.
        (0..5).for_each(|_| queue.enqueue(StdPacket::from_raw_buffer(&[0; 100])));
        assert_eq!((queue.length(), queue.dropped.load(Relaxed)), (3, 2));
        while queue.dequeue().is_some() {}
        assert_eq!((queue.length(), queue.dropped.load(Relaxed)), (0, 2));
    }

    #[test]
    fn drops_by_codel_are_counted() {
        // With a target and an interval of zero, CoDel drops packets from the second one on.
        let now = Duration::ZERO;
        let config = CoDelQueueConfig::new(None, None, now, now, 0, BwType::NetworkLayer);
        let mut queue = counting(CoDelQueue::new(config));
        (0..5).for_each(|_| queue.enqueue(StdPacket::from_raw_buffer(&[0; 100])));
        let left = std::iter::from_fn(|| queue.dequeue()).count() as u64;
        let dropped = queue.dropped.load(Relaxed);
        assert!(dropped > 0);
        assert_eq!((queue.length(), left + dropped), (0, 5));
    }
}
