//! A filter as the program that the kernel runs on each socket: `INET_DIAG_BC_*` of `include/uapi/linux/inet_diag.h`.
//!
//! An operation is `{ code: u8, yes: u8, no: u16 }` with its operand behind it, and jumps forward by `yes` or `no`
//! bytes. What the kernel asks of a program (`inet_diag_bc_audit` of `net/ipv4/inet_diag.c`): jumps are multiples of 4,
//! `yes` leads from each operation to the next up to the end, `no` to the beginning of an operation, to the end, where
//! the socket is taken, or 4 bytes behind it, where it is passed over.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;

use super::{ALTERNATIVES_MAX, Filter};
use crate::diag::{Family, Prefix};

const JMP: u8 = 1;
const S_GE: u8 = 2;
const S_LE: u8 = 3;
const D_GE: u8 = 4;
const D_LE: u8 = 5;
const S_COND: u8 = 7;
const D_COND: u8 = 8;

/// Bytes of an operation without its operand.
const OPERATION_BYTES: usize = 4;
/// Bytes of a `struct inet_diag_hostcond` without its address.
const CONDITION_BYTES: usize = 8;
/// The first address of IPv4 in IPv6 form.
const MAPPED: u128 = 0xffff_0000_0000;
/// A condition on any port.
const ANY_PORT: i32 = -1;

/// The longest alternatives: a range of ports is two comparisons and a jump, a prefix of IPv6 that has IPv4's in it two
/// conditions and two jumps.
const PORTS_BYTES_MAX: usize = 2 * 2 * OPERATION_BYTES + OPERATION_BYTES;
const PREFIX_BYTES_MAX: usize = 2 * (OPERATION_BYTES + CONDITION_BYTES) + 16 + 4 + 2 * OPERATION_BYTES;
const _: () = assert!(
    2 * ALTERNATIVES_MAX * (PORTS_BYTES_MAX + PREFIX_BYTES_MAX) + OPERATION_BYTES <= u16::MAX as usize,
    "a jump over the longest program has 16 bits"
);

/// One side's operations.
struct End {
    at_least: u8,
    at_most: u8,
    within: u8,
}

const LOCAL: End = End { at_least: S_GE, at_most: S_LE, within: S_COND };
const REMOTE: End = End { at_least: D_GE, at_most: D_LE, within: D_COND };

impl Filter {
    /// The program, which says nothing of states: these are asked for beside it. Empty where all sockets are to be told
    /// of: the kernel takes no empty program.
    ///
    /// # Panics
    /// With more than [`ALTERNATIVES_MAX`] in a list.
    pub fn bytecode(&self) -> Vec<u8> {
        let mut program = Program::default();
        program.any(&self.local_ports, |ports, last| ports_operations(&LOCAL, ports, last));
        program.any(&self.remote_ports, |ports, last| ports_operations(&REMOTE, ports, last));
        program.any(&self.local_prefixes, |prefix, last| prefix_operations(&LOCAL, *prefix, last));
        program.any(&self.remote_prefixes, |prefix, last| prefix_operations(&REMOTE, *prefix, last));
        program.finish()
    }
}

/// Where an operation leads that does not hold.
#[derive(Clone, Copy)]
enum No {
    /// Behind this alternative: to the next, or after the last one to where sockets are passed over.
    Alternative,
    /// Behind all alternatives: one has held.
    Held,
    /// Over the next operation.
    Skip,
}

/// An operation whose jumps are not known yet.
struct Operation {
    code: u8,
    operand: Vec<u8>,
    no: No,
}

impl Operation {
    fn bytes(&self) -> usize {
        OPERATION_BYTES + self.operand.len()
    }

    fn jump(no: No) -> Self {
        Self { code: JMP, operand: Vec::new(), no }
    }
}

fn ports_operations(end: &End, ports: &RangeInclusive<u16>, is_last: bool) -> Vec<Operation> {
    let compared = |code, port: u16| {
        // The operand is a whole operation, in whose `no` the port is.
        let operand = [&[0, 0][..], &port.to_ne_bytes()].concat();
        Operation { code, operand, no: No::Alternative }
    };
    let mut operations = vec![compared(end.at_least, *ports.start()), compared(end.at_most, *ports.end())];
    operations.extend((!is_last).then(|| Operation::jump(No::Held)));
    operations
}

fn prefix_operations(end: &End, prefix: Prefix, is_last: bool) -> Vec<Operation> {
    let within = |prefix: Prefix, no| {
        let (family, address) = match prefix.first() {
            IpAddr::V4(address) => (Family::Ipv4, address.octets().to_vec()),
            IpAddr::V6(address) => (Family::Ipv6, address.octets().to_vec()),
        };
        let head = [family.number(), prefix.bits(), 0, 0];
        let operand = [&head[..], &ANY_PORT.to_ne_bytes(), &address].concat();
        Operation { code: end.within, operand, no }
    };
    let mut operations = vec![within(prefix, No::Alternative)];
    // The kernel compares IPv4 in IPv6 form with a prefix of IPv6 as it is. Here that is IPv4, and in none of IPv6's.
    if let IpAddr::V6(first) = prefix.first()
        && first == Ipv6Addr::from_bits(MAPPED & !u128::MAX.checked_shr(prefix.bits().into()).unwrap_or(0))
    {
        let all = Prefix::of(Ipv4Addr::UNSPECIFIED.into(), 0);
        operations.extend([within(all, No::Skip), Operation::jump(No::Alternative)]);
    }
    operations.extend((!is_last).then(|| Operation::jump(No::Held)));
    operations
}

/// A program as it grows.
#[derive(Default)]
struct Program {
    bytes: Vec<u8>,
    /// Offsets of the operations that lead to where sockets are passed over.
    refusing: Vec<usize>,
}

impl Program {
    /// Goes on where any alternative holds; nothing is asked where there are none.
    fn any<T>(&mut self, alternatives: &[T], operations: impl Fn(&T, bool) -> Vec<Operation>) {
        assert!(alternatives.len() <= ALTERNATIVES_MAX, "a list has at most {ALTERNATIVES_MAX} alternatives");
        let mut held = Vec::new();
        for (number, alternative) in alternatives.iter().enumerate() {
            let is_last = number + 1 == alternatives.len();
            let operations = operations(alternative, is_last);
            let end = self.bytes.len() + operations.iter().map(Operation::bytes).sum::<usize>();
            for (at, operation) in operations.iter().enumerate() {
                let offset = self.bytes.len();
                let no = match operation.no {
                    No::Alternative if is_last => {
                        self.refusing.push(offset);
                        0
                    }
                    No::Alternative => end - offset,
                    No::Held => {
                        held.push(offset);
                        0
                    }
                    No::Skip => operation.bytes() + operations.get(at + 1).map_or(0, Operation::bytes),
                };
                let yes = u8::try_from(operation.bytes()).expect("an operation has at most 28 bytes");
                self.bytes.extend([operation.code, yes]);
                self.bytes.extend(jump(no));
                self.bytes.extend(&operation.operand);
            }
        }
        let end = self.bytes.len();
        held.into_iter().for_each(|offset| self.set_no(offset, end));
    }

    fn finish(mut self) -> Vec<u8> {
        let behind = self.bytes.len() + OPERATION_BYTES;
        for offset in std::mem::take(&mut self.refusing) {
            self.set_no(offset, behind);
        }
        self.bytes
    }

    /// Leads the operation at `offset` to `target` where it does not hold.
    fn set_no(&mut self, offset: usize, target: usize) {
        self.bytes[offset + 2..offset + 4].copy_from_slice(&jump(target - offset));
    }
}

fn jump(bytes: usize) -> [u8; 2] {
    u16::try_from(bytes).expect("the longest program has fewer than 65,536 bytes").to_ne_bytes()
}
