//! Characters that a person does not see, or sees as something else.

/// What is wrong with a character in a text for people.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trick {
    /// Takes no room: zero-width, fillers, tags, variation selectors, private use.
    Hidden,
    /// Changes the order in which the text around it is shown.
    Bidi,
    /// Steers a terminal, or has no meaning in a text.
    Control,
}

/// The trick that `character` can play, if any.
pub(crate) fn trick(character: char) -> Option<Trick> {
    match character {
        '\t' | '\n' | '\r' => None,
        '\u{0}'..='\u{1f}' | '\u{7f}'..='\u{9f}' => Some(Trick::Control),
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {
            Some(Trick::Bidi)
        }
        '\u{ad}'
        | '\u{34f}'
        | '\u{115f}'..='\u{1160}'
        | '\u{17b4}'..='\u{17b5}'
        | '\u{180b}'..='\u{180f}'
        | '\u{200b}'..='\u{200d}'
        | '\u{2028}'..='\u{2029}'
        | '\u{2060}'..='\u{2065}'
        | '\u{206a}'..='\u{206f}'
        | '\u{2800}'
        | '\u{3164}'
        | '\u{fdd0}'..='\u{fdef}'
        | '\u{fe00}'..='\u{fe0f}'
        | '\u{feff}'
        | '\u{ffa0}'
        | '\u{fff0}'..='\u{fffb}'
        | '\u{fffe}'..='\u{ffff}'
        | '\u{1bca0}'..='\u{1bca3}'
        | '\u{1d173}'..='\u{1d17a}'
        | '\u{e000}'..='\u{f8ff}'
        // Tags, supplementary variation selectors, and the private planes.
        | '\u{e0000}'..='\u{e0fff}'
        | '\u{f0000}'..='\u{10ffff}' => Some(Trick::Hidden),
        _ => None,
    }
}

/// True for a character that a file or a terminal shows as what it is. Line ends and tabs are not.
pub(crate) fn shows(character: char) -> bool {
    trick(character).is_none() && !character.is_control()
}

/// True for what belongs to the emoji before it: a joiner, or the selector of its coloured form.
pub(crate) fn joins_emoji(before: Option<char>, character: char) -> bool {
    let after_emoji = matches!(
        before,
        Some(
            '#'
            | '*'
            | '0'..='9'
            | '\u{a9}'
            | '\u{ae}'
            | '\u{203c}'
            | '\u{2049}'
            | '\u{2100}'..='\u{27bf}'
            | '\u{2900}'..='\u{2bff}'
            | '\u{3030}'..='\u{303d}'
            | '\u{3297}'..='\u{3299}'
            | '\u{1f000}'..='\u{1faff}',
        )
    );
    match character {
        '\u{fe0f}' => after_emoji,
        '\u{200d}' => after_emoji || before == Some('\u{fe0f}'),
        _ => false,
    }
}
