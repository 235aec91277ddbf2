//! Track languages as BCP 47 tags, from the packed ISO 639-2 code in mdhd (ISO/IEC 14496-12
//! §8.4.2.3).

use crate::purpose::is_purpose_word;

/// ISO 639-2 codes, terminological and bibliographic, with a two-letter equivalent, because BCP 47
/// requires the shortest code (RFC 5646 §2.2.1). Each word is a three-letter code followed by its
/// two-letter equivalent. Source: Unicode CLDR, as all codes shortened by
/// `Intl.getCanonicalLocales` in Node 20.
const SHORTER: &str = "\
    aaraa abkab adpdz afraf akaak albsq alssq amham araar arbar argan armhy asmas avaav aveae aymay \
    ayray azeaz azjaz bakba bambm baqeu belbe benbn bisbi bodbo bosbs brebr bulbg burmy catca cescs \
    chach chece chizh chucu chvcv clssa cmnzh corkw cosco crecr cwdcr cymcy czecs danda deude divdv \
    drhmn dutnl dzodz ekket ellel engen epoeo eskik estet euseu eweee faofo fasfa fatak fijfj finfi \
    frafr frefr fryfy fucff fulff gazom geoka gerde glagd glega glggl glvgv greel grngn guggn gujgu \
    hatht hauha hebhe herhz hinhi hmoho hrvhr hunhu hyehy iboig iceis idoio iiiii ikeiu ikuiu ileie \
    inaia indid ipkik islis itait javjv jawjv jpnja kalkl kankn kasks katka kaukr kazkk khkmn khmkm \
    kikki kinrw kirky kmrku knckr kngkg komkv konkg korko kpvkv kuakj kurku laolo latla lavlv limli \
    linln litlt ltzlb lublu luglg lvslv macmk mahmh malml maomi marmr mayms mkdmk mlgmg mltmt molro \
    monmn mrimi msams myamy nauna navnv nblnr ndend ndong nepne nldnl nnonn nobnb norno npine nyany \
    ocioc ojgoj ojioj orior ormom oryor ossos panpa pbups perfa pesfa plipi pltmg polpl porpt prpgu \
    pusps quequ quzqu rohrm ronro rumro runrn rusru sagsg sansa sccsr scrhr sinsi slksk slosk slvsl \
    smese smosm snasn sndsd somso sotst spaes sqisq srcsc srdsc srpsr sswss sunsu swasw swesv swhsw \
    tahty tamta tattt telte tgktg thath tibbo tirti tonto tsntn tsots tuktk turtr twiak uigug ukruk \
    urdur uzbuz uznuz venve vievi volvo welcy wlnwa wolwo xhoxh yddyi yidyi yoryo zhaza zhozh zsmms \
    zulzu zybza";

/// Returns the language packed into 15 bits of mdhd; `None` if it is `und` or a QuickTime code.
pub(crate) fn from_packed(packed: u16) -> Option<String> {
    let letter = |shift: u16| match (packed >> shift & 0x1f) as u8 {
        index @ 1..=26 => Some(char::from(b'a' + index - 1)),
        _ => None,
    };
    let code: String = [letter(10)?, letter(5)?, letter(0)?].into_iter().collect();
    from_code(&code)
}

/// Returns the language tag in elng (§8.4.6), a zero-terminated string.
pub(crate) fn from_elng(text: &[u8]) -> Option<String> {
    let text = text.split(|b| *b == 0).next().unwrap_or_default();
    // The result is written into playlists and MPDs, so it must be a well-formed tag.
    let is_tag = !text.is_empty() && text.len() <= LANGUAGE_BYTES_MAX;
    let is_tag = is_tag && text.iter().all(|b| b.is_ascii_alphanumeric() || *b == b'-');
    let text = std::str::from_utf8(text).ok().filter(|_| is_tag)?;
    if text.len() == 3 { from_code(text) } else { Some(text.to_owned()) }
}

/// Languages without a two-letter code that subtitles often have.
const ONLY_THREE_LETTERS: [&str; 5] = ["cmn", "fil", "haw", "und", "yue"];

/// Returns the language in a file name such as `film.pt-BR.forced.vtt`: the last part between dots or
/// underscores that is a language tag of a known language and not a purpose.
#[must_use]
pub fn from_name(file: &str) -> Option<String> {
    let name = file.rsplit('/').next().unwrap_or(file);
    let (stem, _) = name.rsplit_once('.')?;
    let mut parts = stem.rsplit(['.', '_']).filter(|part| !is_purpose_word(part));
    let part = parts.find(|part| {
        let primary = part.split('-').next().unwrap_or(part).to_ascii_lowercase();
        let is_known = |entry: &str| entry[..3] == primary || entry[3..] == primary;
        ONLY_THREE_LETTERS.contains(&primary.as_str()) || SHORTER.split(' ').any(is_known)
    })?;
    from_elng(part.to_ascii_lowercase().as_bytes()).map(|tag| match part.split_once('-') {
        Some((_, subtags)) => format!("{}-{subtags}", &tag[..tag.len() - subtags.len() - 1]),
        None => tag,
    })
}

/// Maximum length of a language tag; RFC 5646 §4.4.1 requires support for 35.
const LANGUAGE_BYTES_MAX: usize = 35;

fn from_code(code: &str) -> Option<String> {
    if code == "und" {
        return None;
    }
    let shorter = SHORTER.split(' ').find_map(|entry| entry.strip_prefix(code));
    Some(shorter.unwrap_or(code).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packed(code: [u8; 3]) -> u16 {
        code.iter().fold(0, |packed, b| packed << 5 | u16::from(b - 0x60))
    }

    #[test]
    fn packed_codes_become_bcp_47() {
        assert_eq!(from_packed(packed(*b"eng")).as_deref(), Some("en"));
        assert_eq!(from_packed(packed(*b"ger")).as_deref(), Some("de"), "bibliographic code");
        assert_eq!(from_packed(packed(*b"zul")).as_deref(), Some("zu"), "the last table entry");
        assert_eq!(from_packed(packed(*b"haw")).as_deref(), Some("haw"), "code without a shorter form");
        assert_eq!(from_packed(packed(*b"und")), None);
        assert_eq!(from_packed(0), None, "QuickTime's English");
        assert_eq!(from_packed(0x7fff), None, "QuickTime's unspecified");
    }

    #[test]
    fn elng_is_used_if_it_is_a_tag() {
        assert_eq!(from_elng(b"pt-BR\0").as_deref(), Some("pt-BR"));
        assert_eq!(from_elng(b"deu\0").as_deref(), Some("de"));
        assert_eq!(from_elng(b"\0"), None);
        assert_eq!(from_elng(b"en\"\n#EXT\0"), None);
        assert_eq!(from_elng(&[b'a'; 36]), None);
    }

    #[test]
    fn file_names_state_languages() {
        let of = |file: &str| from_name(file).unwrap_or_else(|| String::from("-"));
        let files = ["a/de.vtt", "a/film.EN.forced.vtt", "subs_ger_sdh.vtt", "x.pt-BR.vtt", "yue.vtt"];
        assert_eq!(files.map(of), ["de", "en", "de", "pt-BR", "yue"]);
        let none = ["de/subs.vtt", "sub.vtt", "subtitles.vtt", "cc.vtt", "en", "x.und.vtt", "x.e.vtt"];
        assert_eq!(none.map(of), ["-"; 7]);
    }

    #[test]
    fn table_is_well_formed() {
        assert!(SHORTER.split(' ').all(|e| e.len() == 5 && e.bytes().all(|b| b.is_ascii_lowercase())));
    }
}
