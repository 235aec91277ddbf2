//! Writer of boxes: sizes are filled in when a box ends.

use crate::fourcc::FourCc;

/// Bytes of boxes, written in order.
#[derive(Debug, Default)]
pub(super) struct Builder {
    pub(super) bytes: Vec<u8>,
}

impl Builder {
    /// Writes a box whose content `write` appends. A box here is always smaller than 4 GiB.
    pub(super) fn boxed<E>(
        &mut self,
        kind: FourCc,
        write: impl FnOnce(&mut Self) -> Result<(), E>,
    ) -> Result<(), E> {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&[0; 4]);
        self.bytes.extend_from_slice(&kind.0);
        write(self)?;
        let size = u32::try_from(self.bytes.len() - start).expect("a built box is smaller than 4 GiB");
        self.bytes[start..start + 4].copy_from_slice(&size.to_be_bytes());
        Ok(())
    }

    /// Writes a full box of 32-bit fields.
    pub(super) fn full(&mut self, kind: FourCc, version: u8, flags: u32, fields: &[u32]) {
        let size = 12 + 4 * fields.len() as u32;
        let front = [size, u32::from_be_bytes(kind.0), u32::from(version) << 24 | flags];
        front.iter().chain(fields).for_each(|field| self.u32(*field));
    }

    /// Appends a 32-bit field.
    pub(super) fn u32(&mut self, value: u32) {
        self.bytes.extend_from_slice(&value.to_be_bytes());
    }
}
