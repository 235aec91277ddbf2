//! sock_diag targets: captures of the kernel's responses, and filters as people write them.

use thalweg_tcp::diag::{Filter, Frames, Socket, decode_capture};

/// Decodes `input` as a capture: netlink messages.
pub(crate) fn capture(input: &[u8]) {
    let decode = |bytes: &[u8]| {
        let mut sockets: Vec<Socket> = Vec::new();
        let decoded = decode_capture(bytes, |socket| sockets.push(*socket));
        (sockets, decoded)
    };
    let (sockets, decoded) = decode(input);
    let framed: usize = Frames::new(input).flatten().map(|frame| frame.bytes.len()).sum();
    assert!(framed <= input.len());
    if let Err(bad) = decoded {
        // The bytes before the fault must form a capture whose sockets were reported.
        assert!(bad.offset_bytes < input.len());
        assert_eq!(decode(&input[..bad.offset_bytes]), (sockets.clone(), Ok(())));
    }
    let all = Filter::parse("state all").expect("the filter must parse");
    for socket in &sockets {
        assert!(all.holds(socket));
        let unmapped = socket.remote_unmapped();
        assert_eq!(unmapped.port(), socket.remote.port());
        assert_eq!(unmapped.ip(), socket.remote.ip().to_canonical());
    }
}

/// Parses `input` as the text of a filter.
pub(crate) fn filter(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    match Filter::parse(&text) {
        Ok(filter) => {
            let program = filter.bytecode();
            // The kernel advances from operation to operation by the second byte of each, to the
            // very end.
            let mut at = 0;
            while at < program.len() {
                assert!(program[at + 1] >= 4 && program[at + 1].is_multiple_of(4));
                at += usize::from(program[at + 1]);
            }
            assert_eq!(at, program.len());
        }
        Err(error) => {
            let said = error.to_string();
            assert!(said.lines().count() >= 3 && said.ends_with('^'), "{said}");
        }
    }
}
