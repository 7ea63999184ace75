//! Where the parts of an expression stand: the parser does not tell. The checker walks the tree in the order of the text, and
//! takes the tokens along.

/// The tokens of a source, and how far they were taken.
pub(super) struct Tokens<'a> {
    source: &'a str,
    /// Where each token begins, and its text.
    tokens: Vec<(usize, &'a str)>,
    next: usize,
    last: usize,
    /// While this is not zero, nothing is taken: what is looked at was made by a macro.
    pub(super) hidden: usize,
}

/// What stands for any literal.
pub(super) const LITERAL: &str = "";

impl<'a> Tokens<'a> {
    pub(super) fn new(source: &'a str) -> Tokens<'a> {
        let (mut tokens, mut at) = (Vec::new(), 0);
        while let Some(first) = source[at..].chars().next() {
            let rest = &source[at..];
            let length = match first {
                c if c.is_whitespace() => c.len_utf8(),
                '/' if rest.starts_with("//") => rest.find('\n').unwrap_or(rest.len()),
                _ => {
                    let (length, is_literal) = token(rest);
                    tokens.push((at, if is_literal { LITERAL } else { &rest[..length] }));
                    length
                }
            };
            at += length;
        }
        Tokens { source, tokens, next: 0, last: 0, hidden: 0 }
    }

    /// Takes the next token of this text. Returns where it begins; where the last one did, if there is none.
    pub(super) fn take(&mut self, text: &str) -> usize {
        let ahead = self.tokens.get(self.next..).unwrap_or_default();
        if self.hidden == 0
            && let Some(found) = ahead.iter().position(|(_, token)| *token == text)
        {
            self.next += found + 1;
            self.last = ahead[found].0;
        }
        self.last
    }

    /// An error as cel-go prints it.
    pub(super) fn point(&self, at: usize, message: &str) -> String {
        let before = &self.source[..at];
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
        point(self.source, line, column, message)
    }
}

/// An error at a place; both are counted from one.
pub(super) fn point(source: &str, line: usize, column: usize, message: &str) -> String {
    let text = source.lines().nth(line.saturating_sub(1)).unwrap_or_default().replace('\t', " ");
    let wide = |c: char| c.len_utf8() > 1;
    let mut chars = text.chars();
    let dots: String =
        chars.by_ref().take(column.saturating_sub(1)).map(|c| if wide(c) { '．' } else { '.' }).collect();
    let end = if chars.next().is_some_and(wide) { '＾' } else { '^' };
    format!("ERROR: <input>:{line}:{column}: {message}\n | {text}\n | {dots}{end}")
}

/// The length of the first token, and whether it is a literal.
fn token(text: &str) -> (usize, bool) {
    let word = text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(text.len());
    let (start, rest) = text.split_at(word);
    let prefix = start.to_ascii_lowercase();
    if rest.starts_with(['"', '\'']) && matches!(prefix.as_str(), "" | "r" | "b" | "rb" | "br") {
        return (word + quoted(rest, prefix.contains('r')), true);
    }
    if start.starts_with(|c: char| c.is_ascii_digit()) {
        return (number(text), true);
    }
    if word > 0 {
        return (word, matches!(start, "true" | "false" | "null"));
    }
    let pairs = ["==", "!=", "<=", ">=", "&&", "||"];
    if pairs.iter().any(|pair| text.starts_with(pair)) {
        return (2, false);
    }
    (text.chars().next().map_or(1, char::len_utf8), false)
}

fn number(text: &str) -> usize {
    let is_part = |(index, c): (usize, char)| {
        let before = text[..index].chars().next_back();
        let after = text[index + c.len_utf8()..].chars().next();
        c.is_ascii_alphanumeric()
            || (c == '.' && after.is_some_and(|after| after.is_ascii_digit()))
            || (matches!(c, '+' | '-') && matches!(before, Some('e' | 'E')) && !text.starts_with("0x"))
    };
    text.char_indices().find(|at| !is_part(*at)).map_or(text.len(), |(index, _)| index)
}

/// The length of a string, with its quotes.
fn quoted(text: &str, raw: bool) -> usize {
    let quote = &text[..1];
    let triple = quote.repeat(3);
    let quote = if text.starts_with(&triple) { triple.as_str() } else { quote };
    let mut at = quote.len();
    while let Some(c) = text.get(at..).and_then(|rest| rest.chars().next()) {
        if text[at..].starts_with(quote) {
            return at + quote.len();
        }
        at += c.len_utf8();
        if c == '\\' && !raw {
            at += text[at..].chars().next().map_or(0, char::len_utf8);
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_found_one_after_the_other() {
        let source = "a.b == r'a\\' && x in [1.5e-3, '=='] // c\n ? \"\"\"q\"\"\" : a";
        let mut tokens = Tokens::new(source);
        let texts: Vec<&str> = tokens.tokens.iter().map(|(_, text)| *text).collect();
        assert_eq!(
            texts,
            [
                "a", ".", "b", "==", LITERAL, "&&", "x", "in", "[", LITERAL, ",", LITERAL, "]", "?", LITERAL,
                ":", "a"
            ]
        );
        assert_eq!((tokens.take("a"), tokens.take("==")), (0, 4));
        assert_eq!(tokens.take("a"), source.len() - 1);
        assert_eq!(tokens.take("missing"), source.len() - 1);
        assert!(tokens.point(source.len() - 1, "m").starts_with("ERROR: <input>:2:"));
    }
}
