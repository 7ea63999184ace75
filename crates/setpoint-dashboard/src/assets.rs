//! The files of the page, as they are in `web/`: there is no build step.

/// One file.
pub(crate) struct Asset {
    path: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) content: &'static [u8],
    /// Whether somebody who is not known yet may have it: what the page that asks for a token needs.
    pub(crate) is_public: bool,
}

const HTML: &str = "text/html; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";
const IMAGE: &str = "image/svg+xml";

macro_rules! assets {
    ($($path:literal $file:literal $kind:ident $public:literal,)*) => {
        const ASSETS: &[Asset] = &[$(Asset {
            path: $path,
            kind: $kind,
            content: include_bytes!(concat!("../web/", $file)),
            is_public: $public,
        }),*];
    };
}

assets! {
    "/" "index.html" HTML false,
    "/style.css" "style.css" STYLE true,
    "/icon.svg" "icon.svg" IMAGE true,
    "/app.js" "app.js" SCRIPT false,
    "/dom.js" "dom.js" SCRIPT false,
    "/words.js" "words.js" SCRIPT false,
    "/stream.js" "stream.js" SCRIPT false,
    "/follow.js" "follow.js" SCRIPT false,
    "/source.js" "source.js" SCRIPT false,
    "/list.js" "list.js" SCRIPT false,
    "/loop.js" "loop.js" SCRIPT false,
    "/stage.js" "stage.js" SCRIPT false,
    "/keys.js" "keys.js" SCRIPT false,
    "/story.js" "story.js" SCRIPT false,
    "/lanes.js" "lanes.js" SCRIPT false,
    "/objects.js" "objects.js" SCRIPT false,
    "/fields.js" "fields.js" SCRIPT false,
    "/findings.js" "findings.js" SCRIPT false,
    "/play.js" "play.js" SCRIPT false,
    "/transport.js" "transport.js" SCRIPT false,
    "/report.js" "report.js" SCRIPT false,
}

/// What somebody sees who is not known.
pub(crate) const LOGIN: &[u8] = include_bytes!("../web/login.html");

pub(crate) fn find(path: &str) -> Option<&'static Asset> {
    ASSETS.iter().find(|asset| asset.path == path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_whole_page_is_below_300_kilobytes() {
        let size: usize = ASSETS.iter().map(|asset| asset.content.len()).sum::<usize>() + LOGIN.len();
        assert!(size < 300_000, "{size} bytes");
    }

    #[test]
    fn no_file_has_an_inline_script_or_style_or_asks_another_host() {
        for (path, content) in
            ASSETS.iter().map(|asset| (asset.path, asset.content)).chain([("login", LOGIN)])
        {
            let text = std::str::from_utf8(content).unwrap();
            for bad in [
                "innerHTML",
                "outerHTML",
                "insertAdjacentHTML",
                "document.write",
                "eval(",
                " style=\"",
                " onclick=",
                "javascript:",
            ] {
                assert!(!text.contains(bad), "{path} has {bad}");
            }
            let elsewhere = text.replace("http://www.w3.org/", "").replace("https://github.com", "");
            assert!(
                !elsewhere.contains("http://") && !elsewhere.contains("https://"),
                "{path} asks another host"
            );
        }
    }

    #[test]
    fn every_module_that_is_imported_is_served() {
        for asset in ASSETS.iter().filter(|asset| asset.kind == SCRIPT) {
            let text = std::str::from_utf8(asset.content).unwrap();
            for line in text.lines().filter(|line| line.starts_with("import ") || line.starts_with("} from "))
            {
                let module = line.split('"').nth(1).unwrap();
                let path = module.strip_prefix('.').unwrap();
                assert!(find(path).is_some(), "{} imports {module}", asset.path);
            }
        }
    }
}
