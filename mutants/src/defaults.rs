//! What a function may return instead of doing its work, by its type.

use syn::{GenericArgument, PathArguments, ReturnType, Type};

/// Expressions; an empty one is a bare `return`. None, if its type has no value that always exists.
pub(crate) fn of(output: &ReturnType) -> Vec<String> {
    match output {
        ReturnType::Default => vec![String::new()],
        ReturnType::Type(_, it) => of_type(it),
    }
}

fn of_type(it: &Type) -> Vec<String> {
    let each = |values: &[&str]| values.iter().map(|it| (*it).to_owned()).collect();
    match it {
        Type::Tuple(it) if it.elems.is_empty() => each(&["()"]),
        Type::Reference(it) if it.mutability.is_none() && is_str(&it.elem) => each(&["\"\""]),
        Type::Path(it) if it.qself.is_none() => {
            let Some(last) = it.path.segments.last() else { return Vec::new() };
            match last.ident.to_string().as_str() {
                "bool" => each(&["true", "false"]),
                "Option" => each(&["None"]),
                "u8" | "u16" | "u32" | "u64" | "u128" | "usize" => each(&["0", "1"]),
                "i8" | "i16" | "i32" | "i64" | "isize" => each(&["0", "1"]),
                "Vec" | "VecDeque" | "String" => each(&["Default::default()"]),
                "BTreeMap" | "BTreeSet" | "HashMap" | "HashSet" => each(&["Default::default()"]),
                "Result" => match &last.arguments {
                    PathArguments::AngleBracketed(it) => match it.args.first() {
                        Some(GenericArgument::Type(good)) => {
                            of_type(good).into_iter().map(|it| format!("Ok({it})")).collect()
                        }
                        _ => Vec::new(),
                    },
                    _ => Vec::new(),
                },
                _ => Vec::new(),
            }
        }
        _ => Vec::new(),
    }
}

fn is_str(it: &Type) -> bool {
    matches!(it, Type::Path(path) if path.path.is_ident("str"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_type_has_its_defaults() {
        assert_eq!(of(&ReturnType::Default), [""]);
        for (output, told) in [
            ("-> bool", vec!["true", "false"]),
            ("-> u16", vec!["0", "1"]),
            ("-> Option<A>", vec!["None"]),
            ("-> std::vec::Vec<A>", vec!["Default::default()"]),
            ("-> Result<(), E>", vec!["Ok(())"]),
            ("-> Result<bool, E>", vec!["Ok(true)", "Ok(false)"]),
            ("-> &'static str", vec!["\"\""]),
            ("-> A", vec![]),
            ("-> impl Iterator<Item = bool>", vec![]),
        ] {
            assert_eq!(of(&syn::parse_str(output).expect("a return type")), told, "{output}");
        }
    }
}
