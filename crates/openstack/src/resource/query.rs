//! What a list is asked for: filters, and how much at a time.

/// Filters of a list; they are joined by "and". An attribute may come twice, as Neutron's `fixed_ips` does.
#[derive(Clone, Debug, PartialEq)]
pub struct Query {
    pub(super) pairs: Vec<(String, String)>,
    pub(super) page: usize,
}

/// What Octavia, Neutron and Nova give at most, unless their operators say otherwise.
const PAGE: usize = 1000;

impl Default for Query {
    fn default() -> Query {
        Query { pairs: Vec::new(), page: PAGE }
    }
}

impl Query {
    pub fn all() -> Query {
        Query::default()
    }

    pub fn named(name: &str) -> Query {
        Query::all().with("name", name)
    }

    #[must_use]
    pub fn with(mut self, attribute: &str, value: impl ToString) -> Query {
        self.pairs.push((attribute.to_owned(), value.to_string()));
        self
    }

    /// What has all of these.
    #[must_use]
    pub fn tagged<'a>(self, tags: impl IntoIterator<Item = &'a str>) -> Query {
        self.listed("tags", tags)
    }

    /// What has one of these.
    #[must_use]
    pub fn tagged_any<'a>(self, tags: impl IntoIterator<Item = &'a str>) -> Query {
        self.listed("tags-any", tags)
    }

    /// How many are asked for in one call.
    #[must_use]
    pub fn page(mut self, size: usize) -> Query {
        self.page = size.max(1);
        self
    }

    fn listed<'a>(self, attribute: &str, tags: impl IntoIterator<Item = &'a str>) -> Query {
        let tags: Vec<&str> = tags.into_iter().collect();
        self.with(attribute, tags.join(","))
    }
}
