//! Expressions of nginx and HAProxy search in a text; those of an HTTPRoute are about the whole of it, as it was sent.

use super::write::REST;

/// `\.php$` as what the whole text has to be. `merged`: slashes at the beginning of a path were one.
pub(super) fn whole(text: &str, any_case: bool, merged: bool) -> String {
    let is_split = has_top_level_bar(text);
    let (begins, ends) = (text.starts_with('^') && !is_split, ends(text) && !is_split);
    let inner = if begins { text.get(1..).unwrap_or_default() } else { text };
    let inner = if ends { inner.strip_suffix('$').unwrap_or(inner) } else { inner };
    let inner = match (begins && merged, inner.strip_prefix("\\/").or_else(|| inner.strip_prefix('/'))) {
        (true, Some(rest)) if !rest.starts_with(['?', '*', '+', '{']) => format!("(?:/|%2[fF])+{rest}"),
        _ => inner.to_owned(),
    };
    let inner = if any_case { format!("(?i:{inner})") } else { inner };
    let inner = if is_split { format!("(?:{inner})") } else { inner };
    format!("{}{inner}{}", if begins { "" } else { REST }, if ends { "" } else { REST })
}

/// As `whole`, for paths that nginx decodes before it compares: `$` is also before a last line feed.
pub(super) fn decoded(text: &str, any_case: bool, merged: bool) -> String {
    let (mut made, mut class, mut escaped) = (String::new(), false, false);
    for it in text.chars() {
        match it {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '[' => class = true,
            ']' => class = false,
            '$' if !class => made.push_str(LINE_FEED),
            _ => {}
        }
        made.push(it);
    }
    whole(&made, any_case, merged)
}

const LINE_FEED: &str = "(?:%0[aA])?";

/// Whether the last `$` is a sign, and no letter.
fn ends(text: &str) -> bool {
    let Some(before) = text.strip_suffix('$') else { return false };
    let slashes = before.bytes().rev().take_while(|it| *it == b'\\').count();
    slashes % 2 == 0
}

/// Whether it has alternatives, and is not in brackets as a whole.
pub(super) fn has_top_level_bar(text: &str) -> bool {
    let (mut depth, mut class, mut escaped) = (0_i32, false, false);
    for it in text.chars() {
        match it {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '[' => class = true,
            ']' => class = false,
            '(' if !class => depth = depth.saturating_add(1),
            ')' if !class => depth = depth.saturating_sub(1),
            '|' if !class && depth == 0 => return true,
            _ => {}
        }
    }
    false
}

/// Escapes that no client needs: nginx undoes them before it compares, so that such a path may be any. It refuses zero bytes.
/// `with_slash`: `%2F` as well, which names with a slash need.
pub(super) fn needless_escapes(with_slash: bool) -> String {
    let signs = if with_slash { "dDeEfF" } else { "dDeE" };
    format!("{REST}%(?:0[0aA]|2[{signs}]|3[0-9]|[46][1-9a-fA-F]|[57][0-9aA]|5[fF]|7[eE]){REST}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_searched_for_may_be_anywhere() {
        for (text, any_case, expected) in [
            (r"\.php$", false, format!(r"{REST}\.php")),
            (r"^/v[0-9]+/", false, format!("(?:/|%2[fF])+v[0-9]+/{REST}")),
            (r"\.(css|js)$", true, format!(r"{REST}(?i:\.(css|js))")),
            (r"^/a|^/b", false, format!("{REST}(?:^/a|^/b){REST}")),
            (r"a\$", false, format!(r"{REST}a\${REST}")),
        ] {
            assert_eq!(whole(text, any_case, true), expected, "{text}");
        }
    }

    #[test]
    fn an_end_is_before_a_last_line_feed_as_well() {
        for (text, expected) in [
            (r"\.php$", format!(r"{REST}\.php(?:%0[aA])?")),
            (r"a$|b$", format!(r"{REST}(?:a(?:%0[aA])?$|b(?:%0[aA])?$){REST}")),
            (r"[$]\$x", format!(r"{REST}[$]\$x{REST}")),
        ] {
            assert_eq!(decoded(text, false, false), expected, "{text}");
        }
    }
}
