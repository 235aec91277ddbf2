//! Socket sources: the kernel, in one or more network namespaces, or a capture.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use thalweg_tcp::diag::{Diag, Extensions, Filter, Socket, decode_capture};

/// Maximum size of a capture in bytes: about a million sockets.
const CAPTURE_BYTES_MAX: u64 = 1 << 30;

/// Directory of named network namespaces.
const NAMESPACES: &str = "/run/netns";

/// Kernel sockets in one or more network namespaces.
#[derive(Debug)]
pub(super) struct Kernel {
    /// Names as given; `None` for the process's own namespace.
    names: Vec<Option<String>>,
    diags: Vec<Diag>,
}

impl Kernel {
    /// Opens the namespaces with these names or paths; without any, opens the process's own.
    ///
    /// # Errors
    ///
    /// Returns an error if a namespace cannot be entered.
    pub(super) fn open(namespaces: &[String]) -> anyhow::Result<Self> {
        if namespaces.is_empty() {
            return Ok(Self { names: vec![None], diags: vec![Diag::open()?] });
        }
        let diags = namespaces.iter().map(|name| Diag::open_in(&file_of(name))).collect::<Result<_, _>>()?;
        Ok(Self { names: namespaces.iter().cloned().map(Some).collect(), diags })
    }

    /// Returns the names of the namespaces.
    pub(super) fn names(&self) -> &[Option<String>] {
        &self.names
    }

    /// Calls `each` with every matching socket, the index of its namespace in [`Kernel::names`],
    /// and its message. Returns false if the kernel reports that sockets may be missing.
    ///
    /// # Errors
    ///
    /// Returns an error if the kernel does not respond.
    pub(super) fn dump(
        &mut self,
        filter: &Filter,
        mut each: impl FnMut(&Socket, usize, &[u8]),
    ) -> anyhow::Result<bool> {
        let mut is_complete = true;
        for (namespace, diag) in self.diags.iter_mut().enumerate() {
            let dumped = diag.dump_with_messages(filter, Extensions::ALL, |socket, message| {
                each(socket, namespace, message);
            })?;
            is_complete &= !dumped.is_interrupted;
        }
        Ok(is_complete)
    }
}

/// Returns the file of a namespace; a name without a slash is in `/run/netns`, as for `ip netns`.
fn file_of(name: &str) -> PathBuf {
    if name.contains('/') { PathBuf::from(name) } else { Path::new(NAMESPACES).join(name) }
}

/// Calls `each` with every matching socket of a capture.
///
/// # Errors
///
/// Returns an error if the file cannot be read or is not a capture. Sockets before the fault have
/// already been passed to `each`.
pub(super) fn decode(path: &Path, filter: &Filter, mut each: impl FnMut(&Socket)) -> anyhow::Result<()> {
    let shown = path.display();
    let mut capture = Vec::new();
    let read = match path == Path::new("-") {
        true => std::io::stdin().take(CAPTURE_BYTES_MAX + 1).read_to_end(&mut capture),
        false => File::open(path).and_then(|file| file.take(CAPTURE_BYTES_MAX + 1).read_to_end(&mut capture)),
    };
    read.with_context(|| format!("cannot read {shown}"))?;
    if capture.len() as u64 > CAPTURE_BYTES_MAX {
        bail!("{shown} exceeds {CAPTURE_BYTES_MAX} bytes: save fewer sockets at once");
    }
    let decoded = decode_capture(&capture, |socket| {
        if filter.holds(socket) {
            each(socket);
        }
    });
    decoded.with_context(|| format!("{shown} is truncated or not a capture"))
}
