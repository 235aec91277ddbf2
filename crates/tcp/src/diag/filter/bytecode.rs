//! Filter compiler: generates the bytecode that the kernel runs on each socket (`INET_DIAG_BC_*` in
//! `include/uapi/linux/inet_diag.h`).
//!
//! An operation is `{ code: u8, yes: u8, no: u16 }` followed by its operand. It jumps forward by
//! `yes` bytes if it matches and by `no` bytes otherwise. The kernel validates each program
//! (`inet_diag_bc_audit` in `net/ipv4/inet_diag.c`). Jumps must be multiples of 4. `yes` must lead
//! to the next operation or to the end of the program. `no` must lead to the start of an operation,
//! to the end of the program, which accepts the socket, or to 4 bytes past the end, which rejects
//! it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;

use ipnet::IpNet;

use super::{ALTERNATIVES_MAX, Filter};
use crate::diag::{Family, network};

const JMP: u8 = 1;
const S_GE: u8 = 2;
const S_LE: u8 = 3;
const D_GE: u8 = 4;
const D_LE: u8 = 5;
const S_COND: u8 = 7;
const D_COND: u8 = 8;

/// Size of an operation without its operand.
const OPERATION_BYTES: usize = 4;
/// Size of `struct inet_diag_hostcond` without its address.
const CONDITION_BYTES: usize = 8;
/// The first IPv4-mapped IPv6 address.
const MAPPED: u128 = 0xffff_0000_0000;
/// Port value of a condition that matches any port.
const ANY_PORT: i32 = -1;

/// Maximum sizes of a port alternative and a prefix alternative. A port range takes two comparisons
/// and a jump. An IPv6 prefix that contains the IPv4-mapped range takes two conditions and two
/// jumps.
const PORTS_BYTES_MAX: usize = 2 * 2 * OPERATION_BYTES + OPERATION_BYTES;
const PREFIX_BYTES_MAX: usize = 2 * (OPERATION_BYTES + CONDITION_BYTES) + 16 + 4 + 2 * OPERATION_BYTES;
const _: () = assert!(
    2 * ALTERNATIVES_MAX * (PORTS_BYTES_MAX + PREFIX_BYTES_MAX) + OPERATION_BYTES <= u16::MAX as usize,
    "a jump over the longest program must fit in 16 bits"
);

/// Operation codes for the address and port of one side of a connection.
struct End {
    at_least: u8,
    at_most: u8,
    within: u8,
}

const LOCAL: End = End { at_least: S_GE, at_most: S_LE, within: S_COND };
const REMOTE: End = End { at_least: D_GE, at_most: D_LE, within: D_COND };

impl Filter {
    /// Compiles the filter's ports and prefixes. States are a separate field of the request.
    /// Returns no bytes if the filter accepts any port and address; the request must then omit the
    /// program, because the kernel rejects an empty program.
    ///
    /// # Panics
    ///
    /// Panics if a list has more than [`ALTERNATIVES_MAX`] values.
    pub fn bytecode(&self) -> Vec<u8> {
        let mut program = Program::default();
        program.any(&self.local_ports, |ports, last| ports_operations(&LOCAL, ports, last));
        program.any(&self.remote_ports, |ports, last| ports_operations(&REMOTE, ports, last));
        program.any(&self.local_prefixes, |prefix, last| prefix_operations(&LOCAL, *prefix, last));
        program.any(&self.remote_prefixes, |prefix, last| prefix_operations(&REMOTE, *prefix, last));
        program.finish()
    }
}

/// Jump target of an operation that does not match.
#[derive(Clone, Copy)]
enum No {
    /// The next alternative, or rejection after the last one.
    Alternative,
    /// Past all alternatives, because one has matched.
    Held,
    /// The operation after the next one.
    Skip,
}

/// An operation with unresolved jumps.
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
        // The operand is laid out like an operation, with the port in its `no` field.
        let operand = [&[0, 0][..], &port.to_ne_bytes()].concat();
        Operation { code, operand, no: No::Alternative }
    };
    let mut operations = vec![compared(end.at_least, *ports.start()), compared(end.at_most, *ports.end())];
    operations.extend((!is_last).then(|| Operation::jump(No::Held)));
    operations
}

fn prefix_operations(end: &End, prefix: IpNet, is_last: bool) -> Vec<Operation> {
    let within = |prefix: IpNet, no| {
        let (family, address) = match prefix.addr() {
            IpAddr::V4(address) => (Family::Ipv4, address.octets().to_vec()),
            IpAddr::V6(address) => (Family::Ipv6, address.octets().to_vec()),
        };
        let head = [family.number(), prefix.prefix_len(), 0, 0];
        let operand = [&head[..], &ANY_PORT.to_ne_bytes(), &address].concat();
        Operation { code: end.within, operand, no }
    };
    let mut operations = vec![within(prefix, No::Alternative)];
    // The kernel matches an IPv4-mapped address against IPv6 prefixes. Our filters treat it as
    // IPv4, so it must not match an IPv6 prefix.
    if let IpAddr::V6(first) = prefix.addr()
        && first
            == Ipv6Addr::from_bits(MAPPED & !u128::MAX.checked_shr(prefix.prefix_len().into()).unwrap_or(0))
    {
        let all = network(Ipv4Addr::UNSPECIFIED.into(), 0);
        operations.extend([within(all, No::Skip), Operation::jump(No::Alternative)]);
    }
    operations.extend((!is_last).then(|| Operation::jump(No::Held)));
    operations
}

/// A program under construction.
#[derive(Default)]
struct Program {
    bytes: Vec<u8>,
    /// Offsets of the operations whose `no` jump rejects the socket.
    rejecting: Vec<usize>,
}

impl Program {
    /// Adds a condition that matches if any alternative matches. Adds nothing for an empty list.
    fn any<T>(&mut self, alternatives: &[T], operations: impl Fn(&T, bool) -> Vec<Operation>) {
        assert!(
            alternatives.len() <= ALTERNATIVES_MAX,
            "a list must have at most {ALTERNATIVES_MAX} alternatives"
        );
        let mut held = Vec::new();
        for (number, alternative) in alternatives.iter().enumerate() {
            let is_last = number + 1 == alternatives.len();
            let operations = operations(alternative, is_last);
            let end = self.bytes.len() + operations.iter().map(Operation::bytes).sum::<usize>();
            for (at, operation) in operations.iter().enumerate() {
                let offset = self.bytes.len();
                let no = match operation.no {
                    No::Alternative if is_last => {
                        self.rejecting.push(offset);
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
        for offset in std::mem::take(&mut self.rejecting) {
            self.set_no(offset, behind);
        }
        self.bytes
    }

    /// Points the `no` jump of the operation at `offset` to `target`.
    fn set_no(&mut self, offset: usize, target: usize) {
        self.bytes[offset + 2..offset + 4].copy_from_slice(&jump(target - offset));
    }
}

fn jump(bytes: usize) -> [u8; 2] {
    u16::try_from(bytes).expect("the longest program has fewer than 65,536 bytes").to_ne_bytes()
}
