//! `limits`: how much memory clients may make the process hold.

use seaway_manifests::decode::Field;
use seaway_proxy::MemoryLimits;

pub(super) fn read(field: &Field<'_>) -> MemoryLimits {
    let section = field.object();
    let at_least = |name, least: u64| {
        let field = section.take(name);
        let size = field.size()?;
        if size < least {
            field.invalid(&*size.to_string(), &format!("must be {}Ki or more", least >> 10));
        }
        Some(size)
    };
    let limits = MemoryLimits {
        total: at_least("memory", MemoryLimits::LEAST_TOTAL),
        per_connection: at_least("memoryPerConnection", MemoryLimits::LEAST_PER_CONNECTION)
            .filter(|it| *it != MemoryLimits::PER_CONNECTION),
    };
    section.finish();
    limits
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{super::parse, *};

    fn limits(text: &str) -> MemoryLimits {
        parse(text, Path::new("")).expect("it is right").memory
    }

    #[test]
    fn limits_of_memory_are_sizes() {
        assert_eq!(limits("{}"), MemoryLimits::default());
        let both = MemoryLimits { total: Some(1 << 30), per_connection: Some(4 << 20) };
        assert_eq!(limits("limits: {memory: 1Gi, memoryPerConnection: 4Mi}"), both);
    }

    #[test]
    fn too_little_is_refused() {
        let faults =
            parse("limits: {memory: 1Mi, memoryPerConnection: 1Ki}", Path::new("")).expect_err("it is wrong");
        let told: Vec<String> = faults.iter().map(ToString::to_string).collect();
        assert_eq!(
            told,
            [
                "limits.memory: Invalid value: \"1048576\": must be 16384Ki or more",
                "limits.memoryPerConnection: Invalid value: \"1024\": must be 256Ki or more",
            ]
        );
    }
}
