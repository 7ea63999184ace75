//! Descriptions → doc comments.

/// What a description becomes: lines of a doc comment, and the description itself where the comment differs.
pub(crate) struct Docs {
    pub(crate) lines: Vec<String>,
    /// Set if a schema that is made from the comment would not have the same description.
    pub(crate) exact: Option<String>,
}

/// rustdoc compiles what Markdown takes for code, so nothing in a comment may look like code; and schemars takes a
/// leading `#` for a title.
pub(crate) fn docs(description: &str) -> Docs {
    let mut lines: Vec<String> = description.trim().lines().map(tame).collect();
    if let Some(first) = lines.first_mut().filter(|first| first.trim_start().starts_with('#')) {
        *first = format!("\\{}", first.trim_start());
    }
    let is_exact = lines.join("\n") == description;
    Docs { lines, exact: (!is_exact).then(|| description.to_owned()) }
}

fn tame(line: &str) -> String {
    let line = line.trim_end().replace('\t', " ").replace("```", "'''").replace("~~~", "'''");
    let indent = line.len() - line.trim_start().len();
    let line = if indent >= 4 { line.trim_start().to_owned() } else { line };
    // Many spaces after the mark of a list or a quote begin code, too.
    let text = line.trim_start();
    let mark = text.find(' ').map_or("", |end| &text[..end]);
    let is_mark = matches!(mark, "-" | "*" | "+" | ">") || is_number(mark);
    if is_mark && text[mark.len()..].starts_with("    ") {
        return format!("{mark} {}", text[mark.len()..].trim_start());
    }
    line.chars().filter(|c| !c.is_control()).collect()
}

fn is_number(mark: &str) -> bool {
    let digits = mark.strip_suffix(['.', ')']).unwrap_or_default();
    !digits.is_empty() && digits.chars().all(|c| c.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ordinary_text_is_kept_as_it_is() {
        let text = "What it is.\n\n  - one\n  - two";
        let docs = docs(text);
        assert_eq!(docs.lines.join("\n"), text);
        assert_eq!(docs.exact, None);
    }

    #[test]
    fn nothing_looks_like_code_and_the_description_is_kept_beside_it() {
        for text in ["Like:\n\n    x: 1", "```\nx\n```", "# Title", "\tx", "-      x", "a \nb", "x\u{7}"] {
            let docs = docs(text);
            assert_eq!(docs.exact.as_deref(), Some(text));
            assert!(
                docs.lines.iter().all(|line| !line.starts_with("    ") && !line.contains("```")),
                "{text}"
            );
            assert!(docs.lines.iter().all(|line| !line.chars().any(char::is_control)), "{text}");
        }
        assert_eq!(docs("# No title").lines, ["\\# No title"]);
    }
}
