//! Rules of rfc8216bis that concern several tags of a playlist, checked without the writer's code or
//! the third-party parser's.

use std::collections::{BTreeMap, BTreeSet};

/// Returns the tags called `tag`, each as a map of its attributes, with quotes removed.
fn tags(playlist: &str, tag: &str) -> Vec<BTreeMap<String, String>> {
    let lists = playlist.lines().filter_map(|line| line.strip_prefix(tag)?.strip_prefix(':'));
    lists.map(attributes).collect()
}

fn attributes(list: &str) -> BTreeMap<String, String> {
    let mut is_quoted = false;
    let separates = |c: char| {
        is_quoted ^= c == '"';
        c == ',' && !is_quoted
    };
    let mut attributes = BTreeMap::new();
    for attribute in list.split(separates) {
        let (name, value) = attribute.split_once('=').unwrap_or_else(|| panic!("{attribute}"));
        let before = attributes.insert(name.to_owned(), value.trim_matches('"').to_owned());
        assert_eq!(before, None, "{name} is repeated in {list}");
    }
    attributes
}

/// Checks a playlist against the rules.
pub(super) fn check(playlist: &str) {
    let mut groups: BTreeMap<(String, String), Vec<BTreeMap<String, String>>> = BTreeMap::new();
    for media in tags(playlist, "#EXT-X-MEDIA") {
        let of_captions = media["TYPE"] == "CLOSED-CAPTIONS";
        assert_eq!(media.contains_key("URI"), !of_captions, "§4.4.6.1: {media:?}");
        assert_eq!(media.contains_key("INSTREAM-ID"), of_captions, "§4.4.6.1: {media:?}");
        assert!(!media.contains_key("FORCED") || media["TYPE"] == "SUBTITLES", "§4.4.6.1: {media:?}");
        assert!(media["DEFAULT"] == "NO" || media["AUTOSELECT"] == "YES", "§4.4.6.1: {media:?}");
        groups.entry((media["TYPE"].clone(), media["GROUP-ID"].clone())).or_default().push(media);
    }
    let mut choices: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for ((kind, id), members) in &groups {
        let names: BTreeSet<String> = members.iter().map(|media| media["NAME"].clone()).collect();
        assert_eq!(names.len(), members.len(), "§4.4.6.1.1: names in {id} are unique");
        assert!(members.iter().filter(|media| media["DEFAULT"] == "YES").count() <= 1, "§4.4.6.1.1: {id}");
        let others = choices.entry(kind.clone()).or_insert_with(|| names.clone());
        assert_eq!(*others, names, "§4.4.6.1.1: all groups of a type have the same choices");
    }
    let variants = tags(playlist, "#EXT-X-STREAM-INF");
    for variant in &variants {
        for kind in ["AUDIO", "SUBTITLES"] {
            let Some(id) = variant.get(kind) else { continue };
            assert!(groups.contains_key(&(kind.to_owned(), id.clone())), "§4.4.6.2: {variant:?}");
        }
        assert_eq!(variant.get("CLOSED-CAPTIONS"), variants[0].get("CLOSED-CAPTIONS"), "§4.4.6.2");
        if let Some(range) = variant.get("VIDEO-RANGE") {
            assert!(["SDR", "HLG", "PQ"].contains(&range.as_str()), "§4.4.6.2: {variant:?}");
        }
        let number = |name: &str| variant[name].parse::<u64>().unwrap();
        assert!(number("AVERAGE-BANDWIDTH") <= number("BANDWIDTH"), "§4.4.6.2: {variant:?}");
    }
}
