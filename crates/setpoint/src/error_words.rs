//! An error and its sources as one line.

use std::error::Error;

/// An error and its sources as one line, from the outermost to the innermost. What an error says of its source already is not said
/// again: those of `kube` do, many others do not.
///
/// ```
/// let error = std::io::Error::other("the disk is full");
/// assert_eq!(setpoint::in_words(&error), "the disk is full");
/// ```
pub fn in_words(error: &(dyn Error + 'static)) -> String {
    let mut words = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_words = cause.to_string();
        if !words.contains(&cause_words) {
            words.push_str(": ");
            words.push_str(&cause_words);
        }
        source = cause.source();
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    enum Failure {
        #[error("cannot read the file: {0}")]
        SaysIts(#[source] std::io::Error),
        #[error("cannot start")]
        SaysNothing(#[source] Box<Failure>),
    }

    #[test]
    fn each_source_is_said_once() {
        let disk = || Failure::SaysIts(std::io::Error::other("the disk is full"));
        assert_eq!(in_words(&disk()), "cannot read the file: the disk is full");
        let nested = Failure::SaysNothing(Box::new(disk()));
        assert_eq!(in_words(&nested), "cannot start: cannot read the file: the disk is full");
    }
}
