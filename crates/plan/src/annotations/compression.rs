//! The rows about compressed responses.

use std::sync::Arc;

use seaway_model::{Name, load_balancer::Compression};

use super::{HttpOptions, Row, http::yes_or_no};
use crate::{http, quantity::list};

pub const COMPRESS: &str = "seaway.dev/compress";
pub const COMPRESS_TYPES: &str = "seaway.dev/compress-types";
pub const COMPRESS_PRIVATE: &str = "seaway.dev/compress-private";

pub(super) const ROWS: &[Row] = &[
    Row {
        names: &[COMPRESS],
        help: "gzip: responses that are text are compressed for clients that accept it; or off (docs/compression.md)",
        set: |wishes, text| {
            let codings = list(text, |it| Ok(it.to_ascii_lowercase()))?;
            wishes.http.terms.compression = match codings.iter().map(String::as_str).collect::<Vec<_>>()[..] {
                ["gzip"] => Some(Arc::default()),
                ["off" | "none" | "false"] => None,
                _ if codings.iter().any(|it| it == "zstd" || it == "br") => {
                    return Err(format!("{text:?} names a coding that Seaway does not have; it has gzip"));
                }
                _ => return Err(format!("{text:?} is not gzip")),
            };
            Ok(())
        },
    },
    Row {
        names: &[COMPRESS_TYPES],
        help: "the media types to compress, in place of the default text types; for example text/*,application/json",
        set: |wishes, text| {
            let types = list(text, media_type)?;
            if types.is_empty() {
                return Err("no media type is named".into());
            }
            compression(&mut wishes.http)?.types = types;
            Ok(())
        },
    },
    Row {
        names: &[COMPRESS_PRIVATE],
        help: "true: responses to requests with Cookie or Authorization, and with Set-Cookie, are compressed, too, though their length may \
               then tell what is secret in them (docs/compression.md); false (default): they are not",
        set: |wishes, text| {
            let private = yes_or_no(text)?;
            compression(&mut wishes.http)?.private = private;
            Ok(())
        },
    },
];

fn compression(http: &mut HttpOptions) -> Result<&mut Compression, String> {
    let asked = http.terms.compression.as_mut().map(Arc::make_mut);
    asked.ok_or_else(|| format!("this annotation needs {COMPRESS}, which turns compression on"))
}

/// What is compressed in itself, or in frames that its reader expects one by one.
fn is_compressed(name: &str) -> bool {
    let plain = ["image/svg+xml", "image/bmp", "image/x-icon", "image/vnd.microsoft.icon"];
    let all = ["image/", "video/", "audio/", "application/grpc"];
    let packed = [
        "application/zip",
        "application/gzip",
        "application/x-gzip",
        "application/zstd",
        "application/x-bzip2",
        "application/x-7z-compressed",
        "font/woff",
        "font/woff2",
    ];
    !plain.contains(&name) && (packed.contains(&name) || all.iter().any(|it| name.starts_with(it)))
}

fn media_type(text: &str) -> Result<Name, String> {
    let name = text.to_ascii_lowercase();
    let is_one = name
        .split_once('/')
        .is_some_and(|(kind, of)| kind != "*" && http::is_token(kind) && (of == "*" || is_name(of)));
    match () {
        () if !is_one => Err(format!("{text:?} is not a media type; write one like text/html, or text/*")),
        () if is_compressed(&name) => {
            Err(format!("{text:?} is compressed in itself: it would only become longer"))
        }
        () => Ok(name.into()),
    }
}

fn is_name(text: &str) -> bool {
    http::is_token(text) && !text.contains('*')
}

#[cfg(test)]
mod tests {
    use seaway_model::{Config, Kind, ObjectRef};

    use super::*;
    use crate::annotations::ServiceOptions;

    fn read(says: &[(&str, &str)]) -> (Option<Compression>, usize) {
        let mut wishes = ServiceOptions::of(&Config::default().defaults);
        let annotations = says.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
        let problems = wishes.read(&ObjectRef::new(Kind::Service, "default", "shop"), &annotations);
        (wishes.http.terms.compression.map(|it| Compression::clone(&it)), problems.len())
    }

    #[test]
    fn a_service_says_what_is_compressed() {
        let types = |all: &[&str]| all.iter().map(|it| (*it).into()).collect::<Vec<Name>>();
        assert_eq!(read(&[(COMPRESS, "gzip")]), (Some(Compression::default()), 0));
        assert_eq!(read(&[(COMPRESS, "off")]), (None, 0));
        let all = [(COMPRESS, "gzip"), (COMPRESS_TYPES, "Text/*, image/svg+xml"), (COMPRESS_PRIVATE, "true")];
        let expected = Compression { types: types(&["text/*", "image/svg+xml"]), private: true };
        assert_eq!(read(&all), (Some(expected), 0));
    }

    /// What is not understood compresses nothing that would not be compressed without it.
    #[test]
    fn what_is_not_understood_is_told_and_compresses_no_more() {
        for coding in ["zstd", "zstd,gzip", "br", "deflate", "", "true"] {
            assert_eq!(read(&[(COMPRESS, coding)]), (None, 1), "{coding}");
        }
        for wrong in [
            "text",
            "*/*",
            "text/h*",
            "/",
            "text/",
            "image/png",
            "video/*",
            "image/*",
            "application/grpc+proto",
        ] {
            assert_eq!(
                read(&[(COMPRESS, "gzip"), (COMPRESS_TYPES, wrong)]),
                (Some(Compression::default()), 1),
                "{wrong}"
            );
        }
        assert_eq!(
            read(&[(COMPRESS, "gzip"), (COMPRESS_PRIVATE, "maybe")]),
            (Some(Compression::default()), 1)
        );
        for alone in [(COMPRESS_TYPES, "text/html"), (COMPRESS_PRIVATE, "true")] {
            assert_eq!(read(&[alone]), (None, 1), "{alone:?}");
        }
    }
}
