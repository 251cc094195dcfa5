//! What a step does to others than those who asked for it. The type of a step says so of each of its kinds, so that the engine asks
//! its gate before such a step (`gate.rs`) and no driver can forget to.

/// What a step does, beside changing what it is about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Effect {
    /// After it something is gone that may have served, or that says who has what.
    pub deletes: bool,
    /// After it clients reach something that they did not reach before.
    pub exposes: bool,
}

impl Effect {
    /// Neither.
    pub const CHANGES: Effect = Effect { deletes: false, exposes: false };
    pub const DELETES: Effect = Effect { deletes: true, exposes: false };
    pub const EXPOSES: Effect = Effect { deletes: false, exposes: true };
    /// One thing takes the place of another.
    pub const REPLACES: Effect = Effect { deletes: true, exposes: true };
}

/// A step says what it does, by what it is. There is no default: who adds a kind of step decides.
pub trait Effects {
    fn effect(&self) -> Effect;
}
