//! Detects the language of a message.

use std::collections::BTreeMap;

use whatlang::{Detector, Lang};

/// A language, identified by its ISO 639-1 code, or by its ISO 639-3 code if it has no two-letter code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Language(Lang);

/// The two-letter codes of the languages that can be detected. Languages that are missing here have only a three-letter code.
const TWO_LETTERS: [(&str, Lang); 66] = [
    ("af", Lang::Afr),
    ("am", Lang::Amh),
    ("ar", Lang::Ara),
    ("az", Lang::Aze),
    ("be", Lang::Bel),
    ("bg", Lang::Bul),
    ("bn", Lang::Ben),
    ("ca", Lang::Cat),
    ("cs", Lang::Ces),
    ("da", Lang::Dan),
    ("de", Lang::Deu),
    ("el", Lang::Ell),
    ("en", Lang::Eng),
    ("eo", Lang::Epo),
    ("es", Lang::Spa),
    ("et", Lang::Est),
    ("fa", Lang::Pes),
    ("fi", Lang::Fin),
    ("fr", Lang::Fra),
    ("gu", Lang::Guj),
    ("he", Lang::Heb),
    ("hi", Lang::Hin),
    ("hr", Lang::Hrv),
    ("hu", Lang::Hun),
    ("hy", Lang::Hye),
    ("id", Lang::Ind),
    ("it", Lang::Ita),
    ("ja", Lang::Jpn),
    ("jv", Lang::Jav),
    ("ka", Lang::Kat),
    ("km", Lang::Khm),
    ("kn", Lang::Kan),
    ("ko", Lang::Kor),
    ("la", Lang::Lat),
    ("lt", Lang::Lit),
    ("lv", Lang::Lav),
    ("mk", Lang::Mkd),
    ("ml", Lang::Mal),
    ("mr", Lang::Mar),
    ("my", Lang::Mya),
    ("nb", Lang::Nob),
    ("ne", Lang::Nep),
    ("nl", Lang::Nld),
    ("or", Lang::Ori),
    ("pa", Lang::Pan),
    ("pl", Lang::Pol),
    ("pt", Lang::Por),
    ("ro", Lang::Ron),
    ("ru", Lang::Rus),
    ("si", Lang::Sin),
    ("sk", Lang::Slk),
    ("sl", Lang::Slv),
    ("sn", Lang::Sna),
    ("sr", Lang::Srp),
    ("sv", Lang::Swe),
    ("ta", Lang::Tam),
    ("te", Lang::Tel),
    ("th", Lang::Tha),
    ("tk", Lang::Tuk),
    ("tl", Lang::Tgl),
    ("tr", Lang::Tur),
    ("uk", Lang::Ukr),
    ("ur", Lang::Urd),
    ("vi", Lang::Vie),
    ("zh", Lang::Cmn),
    ("zu", Lang::Zul),
];

impl Language {
    /// Returns the language with a two-letter or three-letter code.
    pub(crate) fn from_code(code: &str) -> Option<Self> {
        let two = TWO_LETTERS.iter().find(|(two, _)| *two == code);
        two.map(|(_, lang)| *lang)
            .or_else(|| Lang::from_code(code))
            .map(Self)
    }

    /// Returns the two-letter code, or the three-letter code if there is no two-letter code.
    pub(crate) fn code(self) -> &'static str {
        TWO_LETTERS
            .iter()
            .find(|(_, lang)| *lang == self.0)
            .map_or(self.0.code(), |(two, _)| two)
    }

    /// Returns the English name of the language.
    pub(crate) fn name(self) -> &'static str {
        self.0.eng_name()
    }
}

/// Texts by language, with a default language.
#[derive(Debug, Clone)]
pub(crate) struct ByLanguage<T> {
    default: String,
    texts: BTreeMap<String, T>,
}

impl<T> ByLanguage<T> {
    /// Creates the texts, or returns `None` if `texts` has no text for `default`.
    pub(crate) fn new(default: &str, texts: BTreeMap<String, T>) -> Option<Self> {
        texts.contains_key(default).then(|| Self {
            default: default.to_owned(),
            texts,
        })
    }

    /// Returns the text for `language`, or for the default language if there is none.
    pub(crate) fn for_language(&self, language: Option<Language>) -> Option<&T> {
        language
            .and_then(|language| self.texts.get(language.code()))
            .or_else(|| self.texts.get(&self.default))
    }

    pub(crate) fn codes(&self) -> impl Iterator<Item = &str> {
        self.texts.keys().map(String::as_str)
    }
}

/// The confidence, from 0 to 1, above which a guess at an unexpected language excludes the expected languages.
const DOUBT: f64 = 0.5;

/// Returns the language of `text` if it is detected reliably, either among all languages or among the `expected` ones, or `None`,
/// so that the default is used. Short texts are unreliable: `thanks` and `lisinopril dose?` look like Vietnamese.
pub(crate) fn detect<'a>(text: &str, expected: impl Iterator<Item = &'a str>) -> Option<Language> {
    let guess = whatlang::detect(text)?;
    if guess.is_reliable() {
        return Some(Language(guess.lang()));
    }
    let expected: Vec<Lang> = expected
        .filter_map(Language::from_code)
        .map(|language| language.0)
        .collect();
    // An empty allow list would permit every language.
    if expected.is_empty() || (!expected.contains(&guess.lang()) && guess.confidence() > DOUBT) {
        return None;
    }
    Detector::with_allowlist(expected)
        .detect(text)
        .filter(whatlang::Info::is_reliable)
        .map(|sure| Language(sure.lang()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_that_does_not_show_its_language_has_none() {
        for text in [
            "thanks",
            "lisinopril dose?",
            "Bonjour, montrez-moi NUGWI",
            "¿Cuántas veces al día?",
            "hola, ¿qué medicamentos toma?",
            "¿Puede decirme cuál es la dosis?",
            "NUGWI",
            "ok",
            "12345",
        ] {
            for expected in [["en", "vi"], ["de", "vi"], ["en", "fr"]] {
                let detected = detect(text, expected.into_iter()).map(Language::code);
                assert_eq!(detected, None, "{text} among {expected:?}");
            }
        }
        let spanish = "Muéstrame los registros del paciente NUGWI por favor";
        assert_eq!(
            detect(spanish, ["en", "vi"].into_iter()).map(Language::code),
            Some("es")
        );
    }

    #[test]
    fn a_text_shows_its_language_among_all_or_among_the_expected() {
        let of = |text: &str| detect(text, ["en", "vi"].into_iter()).map(Language::code);
        assert_eq!(of("Một ngày nên đánh răng bao nhiêu lần?"), Some("vi"));
        assert_eq!(
            of("How many times a day should I brush my teeth?"),
            Some("en")
        );
        assert_eq!(
            of("Wie oft am Tag sollte ich mir eigentlich die Zähne putzen?"),
            Some("de")
        );
        assert_eq!(of("đau răng"), Some("vi"));
    }

    #[test]
    fn every_two_letters_read_back() {
        for (two, _) in TWO_LETTERS {
            assert_eq!(Language::from_code(two).unwrap().code(), two);
        }
        assert!(Language::from_code("xx").is_none());
    }
}
