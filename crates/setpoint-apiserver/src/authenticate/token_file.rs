//! Tokens that do not change while the server runs: `token,user,uid,"group1,group2"`, a line each.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use ring::digest::{SHA256, digest};

use crate::user::User;

/// Why a token file cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokenFileError {
    /// It cannot be read.
    #[error("cannot read the token file {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A line is not as it should be.
    #[error("line {line} of the token file must be token,user,uid[,\"group1,group2\"]: {why}")]
    Line {
        /// Its number, from 1.
        line: usize,
        /// What is wrong.
        why: &'static str,
    },
}

/// Bearer tokens and their users.
///
/// ```
/// use setpoint_apiserver::TokenFile;
///
/// let file = TokenFile::parse("secret-1,jane,7,\"developers,testers\"\nsecret-2,build,8\n")?;
/// # let _ = file;
/// # Ok::<(), setpoint_apiserver::TokenFileError>(())
/// ```
#[derive(Clone, Default)]
pub struct TokenFile {
    /// By the digest of the token: how long a look-up takes tells nothing about a token.
    users: BTreeMap<[u8; 32], User>,
}

impl fmt::Debug for TokenFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenFile").field("users", &self.users.len()).finish()
    }
}

impl TokenFile {
    /// Reads a file in kube-apiserver's format for `--token-auth-file`.
    pub fn read(path: &Path) -> Result<TokenFile, TokenFileError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| TokenFileError::Read { path: path.to_owned(), source })?;
        TokenFile::parse(&text)
    }

    /// The same for its text. Empty lines, and lines with an empty token, are skipped; of a token that occurs
    /// twice the last line counts.
    pub fn parse(text: &str) -> Result<TokenFile, TokenFileError> {
        let mut users = BTreeMap::new();
        for (index, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            let wrong = |why| TokenFileError::Line { line: index + 1, why };
            let fields = fields(line).ok_or_else(|| wrong("a quote is not closed"))?;
            let [token, name, uid, rest @ ..] = fields.as_slice() else {
                return Err(wrong("there are less than three columns"));
            };
            if name.is_empty() {
                return Err(wrong("the user has no name"));
            }
            if token.is_empty() {
                continue;
            }
            let groups = rest.first().map(String::as_str).unwrap_or_default();
            let mut user = User::new(name.as_str(), groups.split(',').filter(|group| !group.is_empty()));
            user.uid.clone_from(uid);
            users.insert(hash(token), user);
        }
        Ok(TokenFile { users })
    }

    pub(super) fn find(&self, token: &str) -> Option<&User> {
        if self.users.is_empty() { None } else { self.users.get(&hash(token)) }
    }
}

fn hash(token: &str) -> [u8; 32] {
    digest(&SHA256, token.as_bytes()).as_ref().try_into().expect("SHA-256 has 32 bytes")
}

/// The fields of a line of comma-separated values; none if a quote is not closed.
fn fields(line: &str) -> Option<Vec<String>> {
    let (mut fields, mut field, mut is_quoted) = (Vec::new(), String::new(), false);
    let mut characters = line.trim_end_matches('\r').chars().peekable();
    while let Some(c) = characters.next() {
        match c {
            '"' if is_quoted && characters.next_if_eq(&'"').is_some() => field.push('"'),
            '"' if is_quoted || field.is_empty() => is_quoted = !is_quoted,
            ',' if !is_quoted => fields.push(std::mem::take(&mut field)),
            c => field.push(c),
        }
    }
    fields.push(field);
    (!is_quoted).then_some(fields)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_user_with_groups() {
        let file = TokenFile::parse("t1,jane,7,\"a,b\"\r\n\nt2,\"o\"\"x\",8\n,nobody,9\nt1,joe,1\n").unwrap();
        let found = |token| file.find(token).map(|user| (user.name.clone(), user.groups.join("+")));
        assert_eq!(found("t2"), Some(("o\"x".into(), String::new())));
        assert_eq!(found("t1"), Some(("joe".into(), String::new())), "the last line counts");
        assert_eq!(found(""), None);
        assert_eq!(TokenFile::parse("t,jane,7,\"a,b\"").unwrap().find("t").unwrap().groups, ["a", "b"]);
    }

    #[test]
    fn a_wrong_line_is_named_and_the_token_is_not() {
        for (text, line) in [("ok,jane,1\nsecret,joe", 2), ("secret,,1", 1), ("secret,\"joe,1", 1)] {
            let error = TokenFile::parse(text).unwrap_err().to_string();
            assert!(error.contains(&format!("line {line}")) && !error.contains("secret"), "{error}");
        }
    }
}
