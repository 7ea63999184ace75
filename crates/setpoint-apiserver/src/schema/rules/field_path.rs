//! `fieldPath`: the field that a rule blames, such as `.spec.ports['http']`.

use crate::schema::Structural;

/// The path as errors print it; `None` if it leads nowhere in the schema.
pub(crate) fn field_path(path: &str, schema: &Structural) -> Option<String> {
    let mut rest = path;
    let mut schema = schema;
    let mut printed = String::new();
    while !rest.is_empty() {
        let (name, after) = segment(rest)?;
        rest = after;
        if !schema.properties.is_empty() {
            if !printed.is_empty() {
                printed.push('.');
            }
            printed.push_str(&name);
            schema = schema.properties.get(&name)?;
        } else {
            printed.push_str(&format!("[{name}]"));
            schema = schema.additional()?;
        }
    }
    Some(printed)
}

/// The first `.name` or `['name']`, and what follows it.
fn segment(path: &str) -> Option<(String, &str)> {
    if let Some(rest) = path.strip_prefix('.') {
        let end = rest.find(['.', '[', ']']).unwrap_or(rest.len());
        return (end > 0).then(|| (rest[..end].to_owned(), &rest[end..]));
    }
    let rest = path.strip_prefix("['")?;
    let mut name = String::new();
    let mut chars = rest.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '\'' => return rest[at + 1..].strip_prefix(']').map(|after| (name, after)),
            '\\' => name.push(match chars.next()?.1 {
                'a' => '\u{7}',
                'b' => '\u{8}',
                'f' => '\u{c}',
                'n' => '\n',
                'r' => '\r',
                't' => '\t',
                'v' => '\u{b}',
                c @ ('\'' | '\\') => c,
                _ => return None,
            }),
            c => name.push(c),
        }
    }
    None
}
