//! Where sockets come from: the kernel, in one namespace or several, or a capture.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use thalweg_tcp::diag::{Diag, Extensions, Filter, Socket, decode_capture};

/// What a capture may have: that of some million sockets.
const CAPTURE_BYTES_MAX: u64 = 1 << 30;

/// Where named network namespaces have their files.
const NAMESPACES: &str = "/run/netns";

/// The network namespaces that are asked.
#[derive(Debug)]
pub(super) struct Kernel {
    /// How each was named; none of this process's own.
    names: Vec<Option<String>>,
    diags: Vec<Diag>,
}

impl Kernel {
    /// Those of these names or files; without any, that of this process.
    ///
    /// # Errors
    /// Where one cannot be entered.
    pub(super) fn open(namespaces: &[String]) -> anyhow::Result<Self> {
        if namespaces.is_empty() {
            return Ok(Self { names: vec![None], diags: vec![Diag::open()?] });
        }
        let diags = namespaces.iter().map(|name| Diag::open_in(&file_of(name))).collect::<Result<_, _>>()?;
        Ok(Self { names: namespaces.iter().cloned().map(Some).collect(), diags })
    }

    /// The names of the namespaces.
    pub(super) fn names(&self) -> &[Option<String>] {
        &self.names
    }

    /// Calls `each` with every socket that the filter holds for, the place of its namespace in
    /// [`Kernel::names`], and its message. False if the kernel says that some may be missing.
    ///
    /// # Errors
    /// Where the kernel does not answer.
    pub(super) fn dump(
        &mut self,
        filter: &Filter,
        mut each: impl FnMut(&Socket, usize, &[u8]),
    ) -> anyhow::Result<bool> {
        let mut is_complete = true;
        for (place, diag) in self.diags.iter_mut().enumerate() {
            let dumped = diag.dump_with_messages(filter, Extensions::ALL, |socket, message| {
                each(socket, place, message);
            })?;
            is_complete &= !dumped.is_interrupted;
        }
        Ok(is_complete)
    }
}

/// A name is that of a file in `/run/netns`, as `ip netns` has it.
fn file_of(name: &str) -> PathBuf {
    if name.contains('/') { PathBuf::from(name) } else { Path::new(NAMESPACES).join(name) }
}

/// Calls `each` with every socket of a capture that the filter holds for.
///
/// # Errors
/// Where it cannot be read, or is none; what is before that was told.
pub(super) fn decode(path: &Path, filter: &Filter, mut each: impl FnMut(&Socket)) -> anyhow::Result<()> {
    let shown = path.display();
    let mut capture = Vec::new();
    let read = match path == Path::new("-") {
        true => std::io::stdin().take(CAPTURE_BYTES_MAX + 1).read_to_end(&mut capture),
        false => File::open(path).and_then(|file| file.take(CAPTURE_BYTES_MAX + 1).read_to_end(&mut capture)),
    };
    read.with_context(|| format!("cannot read {shown}"))?;
    if capture.len() as u64 > CAPTURE_BYTES_MAX {
        bail!("{shown} has more than {CAPTURE_BYTES_MAX} bytes: save fewer sockets at once");
    }
    let decoded = decode_capture(&capture, |socket| {
        if filter.holds(socket) {
            each(socket);
        }
    });
    decoded.with_context(|| format!("{shown} ends too early or is no capture"))
}
