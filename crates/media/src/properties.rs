//! Optional properties of a track: purposes, colour, audio objects, and encryption.

use crate::protection::Protection;
use crate::purpose::Purposes;

/// Properties that most tracks do not have.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Properties {
    /// Why a viewer would choose the track.
    pub purposes: Purposes,
    /// Colour of a video track, if the file states it.
    pub colour: Option<Colour>,
    /// Complexity index of audio objects in an E-AC-3 track (Dolby Atmos, ETSI TS 103 420 §8.3).
    pub audio_objects: Option<u8>,
    /// Encryption of the track.
    pub protection: Option<Protection>,
}

/// Colour as code points of ISO/IEC 23091-2, from a colr box of type nclx (ISO/IEC 14496-12
/// §12.1.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Colour {
    /// ColourPrimaries.
    pub primaries: u16,
    /// TransferCharacteristics.
    pub transfer: u16,
    /// MatrixCoefficients.
    pub matrix: u16,
    /// VideoFullRangeFlag.
    pub full_range: bool,
}

/// Dynamic range of a video track.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DynamicRange {
    /// Standard dynamic range, or not stated.
    #[default]
    Standard,
    /// Hybrid Log-Gamma, transfer characteristics 18.
    Hlg,
    /// SMPTE ST 2084, transfer characteristics 16: HDR10.
    Pq,
}

/// TransferCharacteristics of ISO/IEC 23091-2 §8.2.
const TRANSFER_PQ: u16 = 16;
const TRANSFER_HLG: u16 = 18;

impl Colour {
    /// Code point of an unspecified value, in all tables of ISO/IEC 23091-2.
    pub const UNSPECIFIED: u16 = 2;

    /// Returns the colour, unless no value is specified.
    #[must_use]
    pub fn if_specified(self) -> Option<Colour> {
        let values = [self.primaries, self.transfer, self.matrix];
        values.iter().any(|value| *value != Colour::UNSPECIFIED).then_some(self)
    }
}

impl Properties {
    /// Returns the dynamic range of a video track.
    #[must_use]
    pub fn dynamic_range(&self) -> DynamicRange {
        match self.colour.map(|colour| colour.transfer) {
            Some(TRANSFER_PQ) => DynamicRange::Pq,
            Some(TRANSFER_HLG) => DynamicRange::Hlg,
            _ => DynamicRange::Standard,
        }
    }
}
