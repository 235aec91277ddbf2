//! Writer for minimal databases in MaxMind DB format, version 2.0: one IPv6 tree with 24-bit
//! records, and IPv4 networks below `::/96`.

use std::net::{IpAddr, Ipv6Addr};

/// A value in a record.
pub enum Data<'a> {
    Text(&'a str),
    Double(f64),
    Short(u16),
    Number(u32),
    Long(u64),
    Map(Vec<(&'a str, Data<'a>)>),
    List(Vec<Data<'a>>),
}

const START_OF_METADATA: &[u8] = b"\xab\xcd\xefMaxMind.com";
/// Number of zero bytes between the tree and the data section; counted in data pointers.
const SEPARATOR_BYTES: usize = 16;

/// One branch of a node.
#[derive(Clone, Copy)]
enum Branch {
    Nothing,
    Node(usize),
    /// Offset in the data section.
    Data(usize),
}

/// Formats a database with these networks, which must not overlap.
pub fn database(kind: &str, networks: &[(&str, Data<'_>)]) -> Vec<u8> {
    let mut nodes = vec![[Branch::Nothing; 2]];
    let mut data = Vec::new();
    for (network, record) in networks {
        let (bits, length) = bits(network);
        let offset = data.len();
        write(record, &mut data);
        let mut node = 0;
        for depth in 0..length {
            let side = usize::from(bits >> (127 - depth) & 1 == 1);
            if depth + 1 == length {
                nodes[node][side] = Branch::Data(offset);
            } else if let Branch::Node(next) = nodes[node][side] {
                node = next;
            } else {
                nodes.push([Branch::Nothing; 2]);
                nodes[node][side] = Branch::Node(nodes.len() - 1);
                node = nodes.len() - 1;
            }
        }
    }
    let mut bytes = Vec::new();
    for branch in nodes.iter().flatten() {
        let record = match branch {
            Branch::Nothing => nodes.len(),
            Branch::Node(node) => *node,
            Branch::Data(offset) => nodes.len() + SEPARATOR_BYTES + offset,
        };
        bytes.extend_from_slice(&u32::try_from(record).unwrap().to_be_bytes()[1..]);
    }
    bytes.extend_from_slice(&[0; SEPARATOR_BYTES]);
    bytes.extend_from_slice(&data);
    bytes.extend_from_slice(START_OF_METADATA);
    let node_count = u32::try_from(nodes.len()).unwrap();
    let metadata = Data::Map(vec![
        ("binary_format_major_version", Data::Short(2)),
        ("binary_format_minor_version", Data::Short(0)),
        ("build_epoch", Data::Long(1_700_000_000)),
        ("database_type", Data::Text(kind)),
        ("description", Data::Map(vec![("en", Data::Text("a test"))])),
        ("ip_version", Data::Short(6)),
        ("languages", Data::List(vec![Data::Text("en")])),
        ("node_count", Data::Number(node_count)),
        ("record_size", Data::Short(24)),
    ]);
    write(&metadata, &mut bytes);
    bytes
}

/// Converts a network to its address bits in the tree and the number of significant bits.
fn bits(network: &str) -> (u128, u32) {
    let (address, length) = network.split_once('/').unwrap();
    let length: u32 = length.parse().unwrap();
    match address.parse().unwrap() {
        IpAddr::V4(address) => (u128::from(u32::from(address)), length + 96),
        IpAddr::V6(address) => (u128::from(Ipv6Addr::from(address.octets())), length),
    }
}

fn write(value: &Data<'_>, into: &mut Vec<u8>) {
    match value {
        Data::Text(text) => {
            control(2, text.len(), into);
            into.extend_from_slice(text.as_bytes());
        }
        Data::Double(value) => {
            control(3, 8, into);
            into.extend_from_slice(&value.to_be_bytes());
        }
        Data::Short(value) => {
            control(5, 2, into);
            into.extend_from_slice(&value.to_be_bytes());
        }
        Data::Number(value) => {
            control(6, 4, into);
            into.extend_from_slice(&value.to_be_bytes());
        }
        Data::Long(value) => {
            control(9, 8, into);
            into.extend_from_slice(&value.to_be_bytes());
        }
        Data::Map(pairs) => {
            control(7, pairs.len(), into);
            for (name, value) in pairs {
                write(&Data::Text(name), into);
                write(value, into);
            }
        }
        Data::List(values) => {
            control(11, values.len(), into);
            values.iter().for_each(|value| write(value, into));
        }
    }
}

/// Writes a control byte with type and size. Types from 8 on need a second byte.
fn control(kind: u8, size: usize, into: &mut Vec<u8>) {
    let short = u8::try_from(size).unwrap();
    let (size, more) = if short < 29 { (short, None) } else { (29, Some(short - 29)) };
    into.push(if kind < 8 { kind << 5 | size } else { size });
    if kind >= 8 {
        into.push(kind - 7);
    }
    into.extend(more);
}
