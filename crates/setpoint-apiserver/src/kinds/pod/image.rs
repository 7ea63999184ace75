//! The names of images, as far as the server needs them: whether one names the newest image.

/// Whether the image is named without a tag or with the tag `latest`, so that it must be pulled each time.
/// What is no name of an image at all is not.
pub(super) fn is_latest(image: &str) -> bool {
    let (rest, digest) = match image.split_once('@') {
        Some((rest, digest)) => (rest, Some(digest)),
        None => (image, None),
    };
    if digest.is_some_and(|digest| !is_digest(digest)) {
        return false;
    }
    let slash = rest.rfind('/').map_or(0, |at| at + 1);
    let (name, tag) = match rest[slash..].split_once(':') {
        Some((last, tag)) => (&rest[..slash + last.len()], Some(tag)),
        None => (rest, None),
    };
    is_name(name) && tag.is_none_or(is_tag) && (tag == Some("latest") || tag.is_none() && digest.is_none())
}

fn is_name(name: &str) -> bool {
    let path = match name.split_once('/') {
        Some((host, path))
            if host.contains(['.', ':']) || host == "localhost" || host.to_lowercase() != host =>
        {
            path
        }
        _ => name,
    };
    name.len() <= 255 && path.split('/').all(is_component)
}

/// Lower-case words with separators between them.
fn is_component(component: &str) -> bool {
    let is_word = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = component.as_bytes();
    let separators = component.split(|c: char| c.is_ascii() && is_word(c as u8));
    bytes.first().copied().is_some_and(is_word)
        && bytes.last().copied().is_some_and(is_word)
        && separators
            .into_iter()
            .all(|text| matches!(text, "" | "." | "_" | "__") || text.bytes().all(|byte| byte == b'-'))
}

fn is_tag(tag: &str) -> bool {
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    tag.len() <= 128
        && tag.bytes().next().is_some_and(is_word)
        && tag.bytes().all(|byte| is_word(byte) || byte == b'.' || byte == b'-')
}

fn is_digest(digest: &str) -> bool {
    digest.split_once(':').is_some_and(|(algorithm, hex)| {
        !algorithm.is_empty() && hex.len() >= 32 && hex.bytes().all(|byte| byte.is_ascii_hexdigit())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_newest_image_is_pulled_each_time() {
        for latest in ["nginx", "nginx:latest", "docker.io/library/nginx", "localhost:5000/a/b", "a__b/c.d-e"]
        {
            assert!(is_latest(latest), "{latest}");
        }
        let digest = format!("nginx@sha256:{}", "a".repeat(64));
        for other in ["nginx:1.25", "Nginx", "", " nginx", "nginx:", "a..b", digest.as_str(), "nginx:la test"]
        {
            assert!(!is_latest(other), "{other}");
        }
    }
}
