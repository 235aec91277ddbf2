//! Sets of tile images among the files of a presentation.

use std::collections::BTreeMap;

use thalweg_media::tiles::{self, Format, HEAD_BYTES_MAX, Layout, Tiles};

use super::load::Fault;
use crate::storage::{Object, Storage};

/// A set of images: its layout, and the images in order.
type Sets = BTreeMap<(String, Layout, Format), Vec<(u32, Object)>>;

/// Takes the images out of `objects`.
pub(super) fn take(objects: &mut Vec<Object>) -> Sets {
    let mut sets = Sets::new();
    objects.retain(|object| match tiles::parse_name(&object.key) {
        None => true,
        Some(name) => {
            let set = sets.entry((name.set, name.layout, name.format)).or_default();
            set.push((name.number, object.clone()));
            false
        }
    });
    sets
}

/// Describes the sets, called `names`. Reads the head of the first image of each.
pub(super) async fn load(
    storage: &Storage,
    sets: Sets,
    names: &[String],
) -> Result<(Vec<(Tiles, Vec<Object>)>, Vec<Fault>), Fault> {
    let (mut loaded, mut faults) = (Vec::new(), Vec::new());
    for (((_, layout, format), mut images), name) in sets.into_iter().zip(names) {
        images.sort_by_key(|(number, _)| *number);
        let fault = |object: &Object, problem| Fault::Image { key: object.key.clone(), problem };
        let gap = images.iter().zip(1..).find(|((number, _), expected)| number != expected);
        if let Some(((_, object), _)) = gap {
            faults.push(fault(object, "images of tiles must be numbered from 1, without gaps"));
            continue;
        }
        let Some((_, first)) = images.first() else { continue };
        let reader = storage.open(first).await.map_err(Fault::Storage)?;
        let head = reader.read(0, first.size.min(HEAD_BYTES_MAX)).await.map_err(Fault::Storage)?;
        let Some(size) = tiles::image_size(&head) else {
            faults.push(fault(first, "not a JPEG or PNG image, or its size is not near its start"));
            continue;
        };
        let objects: Vec<Object> = images.into_iter().map(|(_, object)| object).collect();
        let tiles = Tiles {
            name: name.clone(),
            version: version(&objects),
            layout,
            format,
            size,
            count: u32::try_from(objects.len()).unwrap_or(u32::MAX),
            bytes_max: objects.iter().map(|object| object.size).max().unwrap_or(0),
        };
        loaded.push((tiles, objects));
    }
    Ok((loaded, faults))
}

/// Hashes the versions of all images with FNV-1a, which is identical in every build.
fn version(objects: &[Object]) -> String {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for byte in objects.iter().flat_map(|object| object.version.bytes().chain([0])) {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    format!("{:08x}", (hash >> 32) ^ (hash & 0xffff_ffff))
}
