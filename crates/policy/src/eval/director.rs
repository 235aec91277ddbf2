//! Which backend is meant, and whether one may be asked: through directors within directors, to a depth.

use crate::functions::Asked;
use crate::program::Program;
use crate::task::{Backend, Host, Task};

/// Directors within directors.
pub(crate) const DIRECTOR_DEPTH_MAX: usize = 16;
/// Directors that are looked at to find a healthy member: one may hold itself.
const DIRECTORS_LOOKED_AT_MAX: usize = 1_024;

impl Program {
    /// The declared backend that `backend` stands for now: its own, or that which a director gives.
    pub fn resolve(&self, backend: Backend, task: &mut Task<'_>) -> Option<u32> {
        let mut backend = backend;
        for _ in 0..DIRECTOR_DEPTH_MAX {
            match backend {
                Backend::None => return None,
                Backend::Declared(index) => return Some(index),
                Backend::Director(object) => {
                    let director = self.objects.get(object as usize)?.class.director.as_ref()?;
                    backend = (director.resolve)(Asked::new(self, object)?, task);
                }
            }
        }
        None
    }

    /// Whether a backend, or a member of a director, may be asked now. It moves no director on.
    pub(crate) fn is_healthy(&self, backend: Backend, host: &dyn Host) -> bool {
        self.is_healthy_within(backend, host, DIRECTOR_DEPTH_MAX, &mut { DIRECTORS_LOOKED_AT_MAX })
    }

    fn is_healthy_within(&self, backend: Backend, host: &dyn Host, depth: usize, left: &mut usize) -> bool {
        match backend {
            Backend::None => false,
            Backend::Declared(index) => host.is_healthy(index),
            Backend::Director(_) if depth == 0 || *left == 0 => false,
            Backend::Director(object) => {
                *left -= 1;
                let director = self.objects.get(object as usize).and_then(|row| row.class.director.as_ref());
                let members = director.zip(Asked::new(self, object)).map(|(row, asked)| (row.members)(asked));
                members
                    .into_iter()
                    .flatten()
                    .any(|member| self.is_healthy_within(member, host, depth - 1, left))
            }
        }
    }

    /// The declared backend or the director of this name, as its object.
    pub(crate) fn backend_named(&self, name: &str) -> Backend {
        let position = |found: Option<usize>| found.and_then(|index| u32::try_from(index).ok());
        if let Some(index) = position(self.backends.iter().position(|row| row.name == name)) {
            return Backend::Declared(index);
        }
        let is_named = |row: &crate::program::ObjectRow| row.name == name && row.class.director.is_some();
        position(self.objects.iter().position(is_named)).map_or(Backend::None, Backend::Director)
    }
}
