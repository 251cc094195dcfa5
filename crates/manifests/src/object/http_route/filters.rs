//! What is done to a request and to its answer.

use seaway_model::{
    Name,
    fact::{BackendRef, UnsupportedField},
    load_balancer::{Filter, HeaderChange, PathMatch, Redirect},
};

use super::{backends, cors, matches::is_plain_path, refuse, schema};
use crate::decode::Field;

/// The filters of a rule; a redirect is what the rule does instead of leading anywhere.
#[derive(Default)]
pub(super) struct Filters {
    pub(super) filters: Vec<Filter<BackendRef>>,
    pub(super) redirect: Option<Redirect>,
    pub(super) rewrites_prefix: bool,
    pub(super) redirects_prefix: bool,
}

#[derive(Clone, Copy, PartialEq)]
enum Type {
    RequestHeaders,
    ResponseHeaders,
    Mirror,
    Redirect,
    Rewrite,
    Extension,
    Cors,
    Auth,
}

/// Each type, as the schema names it, and the field that it needs. The last one is of the experimental channel.
const TYPES: [(&str, Type, &str); 8] = [
    ("RequestHeaderModifier", Type::RequestHeaders, "requestHeaderModifier"),
    ("ResponseHeaderModifier", Type::ResponseHeaders, "responseHeaderModifier"),
    ("RequestMirror", Type::Mirror, "requestMirror"),
    ("RequestRedirect", Type::Redirect, "requestRedirect"),
    ("URLRewrite", Type::Rewrite, "urlRewrite"),
    ("ExtensionRef", Type::Extension, "extensionRef"),
    ("CORS", Type::Cors, "cors"),
    ("ExternalAuth", Type::Auth, "externalAuth"),
];

pub(super) fn read(list: &Field<'_>, namespace: &Name, unsupported: &mut Vec<UnsupportedField>) -> Filters {
    schema::at_most_items(list, 16);
    let mut read = Filters::default();
    let mut seen: Vec<Type> = Vec::new();
    for item in list.items() {
        let written = item.child("type");
        if !written.is_set() {
            written.required("");
        }
        let known = TYPES.map(|(name, kind, field)| (name, (name, kind, field)));
        let Some((name, kind, needed)) = written.one_of(&known) else { continue };
        for (name, of, field) in TYPES {
            let set = item.child(field).is_set();
            schema::require(
                &item,
                of == kind || !set,
                &format!("filter.{field} must be nil if the filter.type is not {name}"),
            );
            schema::require(
                &item,
                of != kind || set,
                &format!("filter.{field} must be specified for {name} filter.type"),
            );
        }
        if seen.contains(&kind) && !matches!(kind, Type::Mirror | Type::Extension | Type::Auth) {
            schema::require(list, false, &format!("{name} filter cannot be repeated"));
        }
        seen.push(kind);
        let field = item.child(needed);
        match kind {
            Type::RequestHeaders => read.filters.push(Filter::RequestHeaders(headers(&field))),
            Type::ResponseHeaders => read.filters.push(Filter::ResponseHeaders(headers(&field))),
            Type::Mirror => read.filters.extend(mirror(&field, namespace, unsupported)),
            Type::Redirect => {
                let redirect = redirect(&field);
                read.redirects_prefix |= matches!(redirect.path, Some(PathMatch::Prefix(_)));
                read.redirect = Some(redirect);
            }
            Type::Rewrite => rewrite(&field, &mut read),
            Type::Cors => read.filters.push(Filter::Cors(cors::read(&field))),
            Type::Extension | Type::Auth => {
                refuse(&item, &format!("a filter of type {name}"), unsupported);
            }
        }
    }
    schema::require(
        list,
        !(seen.contains(&Type::Redirect) && seen.contains(&Type::Rewrite)),
        "May specify either httpRouteFilterRequestRedirect or httpRouteFilterRequestRewrite, but not both",
    );
    read
}

fn headers(field: &Field<'_>) -> HeaderChange {
    let remove = field.child("remove");
    schema::at_most_items(&remove, 16);
    let mut removed: Vec<Name> = Vec::new();
    for item in remove.items() {
        let Some(name) = item.text() else { continue };
        schema::token(&item, name);
        if removed.iter().any(|it| **it == *name) {
            item.duplicate(name);
        }
        removed.push(name.into());
    }
    HeaderChange { set: pairs(&field.child("set")), add: pairs(&field.child("add")), remove: removed }
}

fn pairs(list: &Field<'_>) -> Vec<(Name, Name)> {
    schema::at_most_items(list, 16);
    let mut pairs: Vec<(Name, Name)> = Vec::new();
    for item in list.items() {
        let value = item.child("value");
        let (name, text) = (schema::header_name(&item.child("name")), schema::text(&value, 4096));
        let (Some(name), Some(text)) = (name, text) else { continue };
        schema::header_value(&value, text);
        if pairs.iter().any(|(known, _)| **known == *name) {
            item.error(format!("Duplicate value: {{\"name\":{name:?}}}"));
        }
        if !pairs.iter().any(|(known, _)| known.eq_ignore_ascii_case(name)) {
            pairs.push((name.into(), text.into()));
        }
    }
    pairs
}

fn mirror(
    field: &Field<'_>,
    namespace: &Name,
    unsupported: &mut Vec<UnsupportedField>,
) -> Option<Filter<BackendRef>> {
    let backend = field.child("backendRef");
    if !backend.is_set() {
        backend.required("");
        return None;
    }
    let to = backends::one(&backend, namespace, unsupported);
    let (percent, fraction) = (field.child("percent"), field.child("fraction"));
    schema::require(
        field,
        !(percent.is_set() && fraction.is_set()),
        "Only one of percent or fraction may be specified in HTTPRequestMirrorFilter",
    );
    let per_mille = match percent.integer_within::<u16>(0, 100) {
        Some(percent) => percent.saturating_mul(10),
        None if fraction.is_set() => self::fraction(&fraction),
        None => 1_000,
    };
    Some(Filter::Mirror { to: to?, per_mille })
}

fn fraction(field: &Field<'_>) -> u16 {
    let (numerator, denominator) = (field.child("numerator"), field.child("denominator"));
    if !numerator.is_set() {
        numerator.required("");
    }
    let most = i64::from(i32::MAX);
    let part: i64 = numerator.integer_within(0, most).unwrap_or(0);
    let whole: i64 = denominator.integer_within(1, most).unwrap_or(100);
    schema::require(field, part <= whole, "numerator must be less than or equal to denominator");
    let per_mille = part.saturating_mul(1_000).checked_div(whole);
    per_mille.and_then(|it| u16::try_from(it).ok()).unwrap_or(1_000).min(1_000)
}

fn redirect(field: &Field<'_>) -> Redirect {
    const CODES: [i64; 5] = [301, 302, 303, 307, 308];
    let code = field.child("statusCode");
    let written = code.integer();
    if let Some(number) = written.filter(|it| !CODES.contains(it)) {
        let codes: Vec<String> = CODES.iter().map(|it| format!("\"{it}\"")).collect();
        code.error(format!("Unsupported value: {number}: supported values: {}", codes.join(", ")));
    }
    Redirect {
        scheme: field.child("scheme").one_of(&[("http", "http"), ("https", "https")]).map(Name::from),
        host: precise(&field.child("hostname")),
        port: field.child("port").port(),
        path: changed_path(&field.child("path")),
        code: written.and_then(|it| u16::try_from(it).ok()).unwrap_or(302),
    }
}

fn rewrite(field: &Field<'_>, read: &mut Filters) {
    read.filters.extend(precise(&field.child("hostname")).map(Filter::RewriteHost));
    match changed_path(&field.child("path")) {
        Some(PathMatch::Prefix(by)) => {
            read.rewrites_prefix = true;
            read.filters.push(Filter::RewritePrefix(by));
        }
        Some(PathMatch::Exact(by) | PathMatch::Regex(by)) => read.filters.push(Filter::RewritePath(by)),
        None => {}
    }
}

fn precise(field: &Field<'_>) -> Option<Name> {
    let text = field.text()?;
    schema::hostname(field, text, false);
    Some(text.into())
}

/// The whole path, or what takes the place of the prefix.
fn changed_path(field: &Field<'_>) -> Option<PathMatch> {
    if !field.is_set() {
        return None;
    }
    let kind = field.child("type");
    if !kind.is_set() {
        kind.required("");
    }
    let kinds = [("ReplaceFullPath", "replaceFullPath"), ("ReplacePrefixMatch", "replacePrefixMatch")];
    let wanted = kind.one_of(&kinds)?;
    for (name, value) in kinds {
        let set = field.child(value).is_set();
        schema::require(
            field,
            value != wanted || set,
            &format!("{value} must be specified when type is set to '{name}'"),
        );
        schema::require(
            field,
            value == wanted || !set,
            &format!("type must be '{name}' when {value} is set"),
        );
    }
    let value = field.child(wanted);
    let text = value.text()?;
    schema::at_most_bytes(&value, text, 1024);
    if !is_plain_path(text) {
        // The schema does not say so; a head that is put together from it must stay whole.
        value.invalid(text, "must only contain characters that are valid in a path");
    }
    let whole = if text.is_empty() || text.starts_with('/') { text.to_owned() } else { format!("/{text}") };
    Some(if wanted == "replaceFullPath" {
        PathMatch::Exact(whole.into())
    } else {
        PathMatch::Prefix(whole.into())
    })
}
