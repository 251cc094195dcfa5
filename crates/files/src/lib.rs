pub mod decode;
pub mod object;
pub mod tree;
