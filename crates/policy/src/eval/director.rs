//! Resolves directors to backends and determines their health. Follows nested directors up to a
//! maximum depth.

use crate::functions::ObjectRef;
use crate::program::Program;
use crate::task::{Host, Task};
use crate::value::Backend;

/// Maximum nesting of directors.
pub(crate) const DIRECTOR_DEPTH_MAX: usize = 16;
/// Maximum number of directors visited in one health check. A limit is required because a director
/// may contain itself.
const DIRECTORS_VISITED_MAX: usize = 1_024;

impl Program {
    /// Returns the index of the declared backend that `backend` currently resolves to, following
    /// directors.
    pub fn resolve(&self, backend: Backend, task: &mut Task<'_>) -> Option<u32> {
        let mut backend = backend;
        for _ in 0..DIRECTOR_DEPTH_MAX {
            match backend {
                Backend::None => return None,
                Backend::Declared(index) => return Some(index),
                Backend::Director(object) => {
                    let director = self.objects.get(object as usize)?.class.director.as_ref()?;
                    backend = (director.resolve)(ObjectRef::new(self, object)?, task);
                }
            }
        }
        None
    }

    /// Returns whether a backend is healthy. A director is healthy if any of its members is. Does
    /// not change the directors' state.
    pub(crate) fn is_healthy(&self, backend: Backend, host: &dyn Host) -> bool {
        self.is_healthy_within(backend, host, DIRECTOR_DEPTH_MAX, &mut { DIRECTORS_VISITED_MAX })
    }

    fn is_healthy_within(&self, backend: Backend, host: &dyn Host, depth: usize, left: &mut usize) -> bool {
        match backend {
            Backend::None => false,
            Backend::Declared(index) => host.is_healthy(index),
            Backend::Director(_) if depth == 0 || *left == 0 => false,
            Backend::Director(object) => {
                *left -= 1;
                let director = self.objects.get(object as usize).and_then(|row| row.class.director.as_ref());
                let members =
                    director.zip(ObjectRef::new(self, object)).map(|(row, this)| (row.members)(this));
                members
                    .into_iter()
                    .flatten()
                    .any(|member| self.is_healthy_within(member, host, depth - 1, left))
            }
        }
    }

    /// Finds the backend called `name`: a declared backend, or otherwise a director object.
    pub(crate) fn backend_named(&self, name: &str) -> Backend {
        let position = |found: Option<usize>| found.and_then(|index| u32::try_from(index).ok());
        if let Some(index) = position(self.backends.iter().position(|row| row.name == name)) {
            return Backend::Declared(index);
        }
        let is_named = |row: &crate::program::ObjectRow| row.name == name && row.class.director.is_some();
        position(self.objects.iter().position(is_named)).map_or(Backend::None, Backend::Director)
    }
}
