//! sock_diag targets: captures of the kernel's responses, and socket filters in text form.

use thalweg_tcp::diag::{Filter, Frames, Socket, decode_capture};

/// Decodes `input` as a capture, which is a sequence of netlink messages.
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
        // The bytes before the fault must be a valid capture with the same sockets.
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

/// Parses `input` as a filter.
pub(crate) fn filter(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    match Filter::parse(&text) {
        Ok(filter) => {
            let program = filter.bytecode();
            // The second byte of an operation is its length, by which the kernel advances to the
            // next operation. The lengths must add up to the end of the program.
            let mut at = 0;
            while at < program.len() {
                assert!(program[at + 1] >= 4 && program[at + 1].is_multiple_of(4));
                at += usize::from(program[at + 1]);
            }
            assert_eq!(at, program.len());
        }
        Err(error) => {
            let report = error.to_string();
            assert!(report.lines().count() >= 3 && report.ends_with('^'), "{report}");
        }
    }
}
