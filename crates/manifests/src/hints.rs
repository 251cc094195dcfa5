//! What to write, for faults whose words (a YAML reader's, an API server's) name the cause and no remedy.

use crate::{
    decode::ValidationError,
    object::{NO_ITEMS, NOT_USED, UNTIL_CORRECTED},
};

/// Nothing, where the message says it already.
pub fn hint(fault: &ValidationError) -> Option<String> {
    let ValidationError { field, message, .. } = fault;
    let known = if field.is_empty() { syntax(message) } else { None };
    known
        .map(str::to_owned)
        .or_else(|| quotes(field, message))
        .or_else(|| punycode(field, message))
        .or_else(|| of_field(field, message).map(str::to_owned))
}

fn syntax(message: &str) -> Option<&'static str> {
    let has = |part: &str| message.contains(part);
    let heads = ["apiVersion", "kind", "metadata"].map(|key| format!("key {key:?}"));
    Some(match message {
        _ if has("already set in map") && heads.iter().any(|key| message.starts_with(key)) => {
            "If a second object begins here, write a line with --- before it."
        }
        _ if has("already set in map") => "Remove one of the two.",
        _ if has("the marker of a merge conflict") => {
            "Keep one of the two sides, and remove the lines with <<<<<<<, ======= and >>>>>>>."
        }
        _ if has("tabs disallowed") => "Indent with spaces: YAML allows no tabs.",
        _ if has("a key has to be plain text") => {
            "Quote values that begin with { or [. Templates of Helm have to be rendered before: helm template."
        }
        _ if has("flow mapping") || has("flow sequence") => "Close this bracket, or one within it.",
        _ if has("quoted scalar") || has("quote") => "Close the quote that was opened before.",
        _ if has("mapping values are not allowed") || has("simple key") || has("expected ':'") => {
            "Write a space after each colon, as in kind: Service, and quotes around a value that contains a colon and a space."
        }
        _ if has("three dashes") => "Replace it by a line with ---.",
        _ if has("did not find expected") => {
            "Fields of one map begin in the same column: compare this line with those before it. Values that begin with \
             [, {, * or & need quotes."
        }
        _ => return None,
    })
}

/// A number or a boolean where a text is needed: as it is to be written.
fn quotes(field: &str, message: &str) -> Option<String> {
    let before = message.strip_suffix(": must be a string, in quotes")?;
    let value = before.strip_prefix("Invalid value: ")?;
    if field == "metadata.annotations[seaway.dev/health-check]" && value == "false" {
        return Some("To turn health checks off, write none.".to_owned());
    }
    Some(format!("Write it in quotes: \"{value}\"."))
}

/// A host name in other letters than those of ASCII: as clients send it.
fn punycode(field: &str, message: &str) -> Option<String> {
    let value = message.strip_prefix("Invalid value: \"").filter(|_| field.contains("ost"))?;
    let ascii = seaway_plan::ascii_host(value.split('"').next()?)?;
    Some(format!("Write {ascii}: that is the name as clients send it."))
}

fn of_field(field: &str, message: &str) -> Option<&'static str> {
    let has = |part: &str| message.contains(part);
    let is_required = message.starts_with("Required value");
    Some(match field {
        _ if field.starts_with("metadata.annotations[") && has(" part must consist of") => {
            "If the value before it contains a comma, quote it: within { }, a comma begins the next key."
        }
        _ if field.starts_with("spec.ports[") && field.ends_with(".name") && is_required => {
            "Each of several ports needs a name: {name: web, port: 80}."
        }
        "spec.ports" if is_required => "A Service needs ports: ports: [{port: 8080}].",
        "spec.loadBalancerSourceRanges" if message.starts_with("Forbidden") => {
            "At the front door, use the annotation seaway.dev/source-ranges."
        }
        _ if message.ends_with(NO_ITEMS) => "Write the objects below items; items: [] is a List without any.",
        _ if message.ends_with(NOT_USED) || message.ends_with(UNTIL_CORRECTED) => "Correct it, or remove it.",
        _ if has("must be a valid IPv4 address") || has("must be a valid IPv6 address") => {
            "Ports stand in ports, not in addresses. IPv4 and IPv6 addresses, and DNS names (addressType: FQDN), need an \
             EndpointSlice each."
        }
        _ if has("://") && (field.contains("ost") || field.ends_with("externalName")) => {
            "Write the host name alone, without https:// before it."
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{object::tests::read_text, tree};

    fn hint_of(text: &str) -> String {
        let fault = match tree::parse(text) {
            Err(error) => ValidationError { field: String::new(), at: error.at, message: error.message },
            Ok(_) => read_text(text).remove(0).result.expect_err("it is wrong").errors.remove(0),
        };
        hint(&fault).unwrap_or_else(|| panic!("no hint: {fault}"))
    }

    #[test]
    fn each_usual_slip_in_yaml_has_a_remedy() {
        let head = "apiVersion: v1\nkind: Service\nmetadata:\n  name: a\n";
        for (text, remedy) in [
            (format!("{head}{head}"), "write a line with --- before it"),
            ("a: 1\na: 2\n".to_owned(), "Remove one of the two"),
            (format!("{head}spec:\n\tports: []\n"), "Indent with spaces"),
            (format!("{head} annotations:\n    a: b\n"), "begin in the same column"),
            ("a: {{ .Release.Name }}\n".to_owned(), "helm template"),
            ("a: {b: 1\nc: 2\n".to_owned(), "Close this bracket"),
            ("a: 1\n--\nb: 2\n".to_owned(), "a line with ---"),
            ("a: \"b\nc: d\n".to_owned(), "Close the quote"),
            ("kind:Service\na: b\n".to_owned(), "a space after each colon"),
            ("a: b: c\n".to_owned(), "a space after each colon"),
            (
                format!("{head}  annotations: {{a: 100}}\nspec: {{ports: [{{port: 80}}]}}\n"),
                "Write it in quotes: \"100\".",
            ),
        ] {
            assert!(hint_of(&text).contains(remedy), "{text}: {}", hint_of(&text));
        }
    }
}
