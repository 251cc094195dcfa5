//! The fields of each kind of object as a table, from which the types are made.
//!
//! ```text
//!                    read as Pool    made by NewPool    changed by PoolChange
//!   needed             always          argument           -
//!   needed_and_free    always          argument           Edit
//!   fixed              if told         Edit               -
//!   free               if told         Edit               Edit
//!   given              -               Edit               -
//!   told               if told         -                  -
//! ```
//!
//! What can be null is an `Option`; a list, map or word that is null reads as an empty one. `as "…"` names a field
//! that is written otherwise. Without `/ PoolChange` nothing can be changed, without `/ NewPool` nothing made. A
//! `view!` is the few fields that somebody needs of many objects: only those are asked for.

macro_rules! resource {
    ($(#[$doc:meta])* $name:ident $(/ $new:ident $(/ $change:ident)?)?
        $(needed { $($needed:tt)* })?
        $(needed_and_free { $($moving:tt)* })?
        $(fixed { $($fixed:tt)* })?
        $(free { $($free:tt)* })?
        $(given { $($given:tt)* })?
        $(told { $($told:tt)* })?
    ) => {
        resource!(@all [$(#[$doc])*] $name [$($new $($change)?)?]
            { $($($needed)*)? $($($moving)*)? }
            { $($($moving)*)? }
            { $($($fixed)*)? $($($free)*)? }
            { $($($free)*)? }
            { $($($given)*)? }
            { $($($fixed)*)? $($($free)*)? $($($told)*)? });
    };

    (@all $doc:tt $name:ident []
        $needed:tt $moving:tt $free:tt $loose:tt $given:tt $told:tt
    ) => {
        resource!(@read $doc $name $needed $told);
    };
    (@all $doc:tt $name:ident [$new:ident]
        $needed:tt $moving:tt $free:tt $loose:tt $given:tt $told:tt
    ) => {
        resource!(@read $doc $name $needed $told);
        resource!(@made $name $new $needed $free $given);
    };
    (@all $doc:tt $name:ident [$new:ident $change:ident]
        $needed:tt $moving:tt $free:tt $loose:tt $given:tt $told:tt
    ) => {
        resource!(@read $doc $name $needed $told);
        resource!(@made $name $new $needed $free $given);
        resource!(@changed $name $new $change $moving $loose);
    };

    (@read [$($doc:tt)*] $name:ident
        { $($(#[$n_doc:meta])* $n:ident: $n_type:ty $(as $n_wire:literal)?,)* }
        { $($(#[$o_doc:meta])* $o:ident: $o_type:ty $(as $o_wire:literal)?,)* }
    ) => {
        $($doc)*
        #[derive(Clone, Debug, PartialEq)]
        pub struct $name {
            pub id: $crate::resource::Id<$name>,
            $($(#[$n_doc])* pub $n: $n_type,)*
            $($(#[$o_doc])* pub $o: $o_type,)*
            /// What else was told.
            pub rest: $crate::resource::UnknownFields,
        }

        impl $crate::resource::View for $name {
            type Resource = $name;
            const FIELDS: &'static [&'static str] = &[];

            fn id(&self) -> &$crate::resource::Id<$name> {
                &self.id
            }

            fn read(mut fields: $crate::resource::Fields) -> Result<$name, $crate::resource::FieldError> {
                Ok($name {
                    id: fields.id::<$name>()?,
                    $($n: fields.need($crate::resource::wire!($n $($n_wire)?))?,)*
                    $($o: fields.take($crate::resource::wire!($o $($o_wire)?))?,)*
                    rest: fields.rest(),
                })
            }
        }
    };

    (@made $name:ident $new:ident
        { $($(#[$n_doc:meta])* $n:ident: $n_type:ty $(as $n_wire:literal)?,)* }
        { $($(#[$o_doc:meta])* $o:ident: $o_type:ty $(as $o_wire:literal)?,)* }
        { $($(#[$g_doc:meta])* $g:ident: $g_type:ty $(as $g_wire:literal)?,)* }
    ) => {
        #[doc = concat!("What a `", stringify!($name), "` is made by; what is left has the cloud's default.")]
        #[derive(Clone, Debug, PartialEq, serde::Serialize)]
        pub struct $new {
            $($(#[$n_doc])* $(#[serde(rename = $n_wire)])? pub $n: $n_type,)*
            $($(#[$o_doc])* $(#[serde(rename = $o_wire)])?
            #[serde(skip_serializing_if = "crate::resource::Edit::is_left")]
            pub $o: $crate::resource::Edit<$o_type>,)*
            $($(#[$g_doc])* $(#[serde(rename = $g_wire)])?
            #[serde(skip_serializing_if = "crate::resource::Edit::is_left")]
            pub $g: $crate::resource::Edit<$g_type>,)*
            /// Fields that this version does not know.
            #[serde(flatten)]
            pub rest: $crate::resource::UnknownFields,
        }

        impl $new {
            // Most kinds need something.
            #[allow(clippy::new_without_default)]
            pub fn new($($n: impl Into<$n_type>),*) -> $new {
                $new {
                    $($n: $n.into(),)*
                    $($o: $crate::resource::Edit::Leave,)*
                    $($g: $crate::resource::Edit::Leave,)*
                    rest: $crate::resource::UnknownFields::new(),
                }
            }

            /// What would make one like this, as far as this version knows it. Of what it does not know nobody can say
            /// whether it may be sent: a service refuses the whole body for one field that it only tells. Who knows
            /// puts it into `rest`.
            // Some kinds tell nothing that they are made by.
            #[allow(unused_variables)]
            pub fn like(it: &$name) -> $new {
                $new {
                    $($o: $crate::resource::Edit::To(it.$o.clone()),)*
                    ..$new::new($(it.$n.clone()),*)
                }
            }
        }
    };

    (@changed $name:ident $new:ident $change:ident
        { $($(#[$n_doc:meta])* $n:ident: $n_type:ty $(as $n_wire:literal)?,)* }
        { $($(#[$o_doc:meta])* $o:ident: $o_type:ty $(as $o_wire:literal)?,)* }
    ) => {
        #[doc = concat!("What is changed of a `", stringify!($name), "`, and nothing else.")]
        #[derive(Clone, Debug, Default, PartialEq, serde::Serialize)]
        pub struct $change {
            $($(#[$n_doc])* $(#[serde(rename = $n_wire)])?
            #[serde(skip_serializing_if = "crate::resource::Edit::is_left")]
            pub $n: $crate::resource::Edit<$n_type>,)*
            $($(#[$o_doc])* $(#[serde(rename = $o_wire)])?
            #[serde(skip_serializing_if = "crate::resource::Edit::is_left")]
            pub $o: $crate::resource::Edit<$o_type>,)*
        }

        impl $change {
            /// What makes `now` as wanted, as far as it can be changed.
            pub fn between(now: &$name, wanted: &$new) -> $change {
                $change {
                    $($n: $crate::resource::Edit::To(wanted.$n.clone()).unless_equal(&now.$n),)*
                    $($o: wanted.$o.unless_equal(&now.$o),)*
                }
            }

            pub fn is_empty(&self) -> bool {
                true $(&& self.$n.is_left())* $(&& self.$o.is_left())*
            }
        }

        impl $crate::resource::Changeable for $name {
            type Change = $change;
        }
    };
}

macro_rules! view {
    ($(#[$doc:meta])* $name:ident of $of:ty
        { $($(#[$f_doc:meta])* $f:ident: $f_type:ty $(as $wire:literal)?,)* }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq)]
        pub struct $name {
            pub id: $crate::resource::Id<$of>,
            $($(#[$f_doc])* pub $f: $f_type,)*
        }

        impl $crate::resource::View for $name {
            type Resource = $of;
            const FIELDS: &'static [&'static str] = &[
                <$of as $crate::resource::Resource>::ID,
                $($crate::resource::wire!($f $($wire)?),)*
            ];

            fn id(&self) -> &$crate::resource::Id<$of> {
                &self.id
            }

            fn read(mut fields: $crate::resource::Fields) -> Result<$name, $crate::resource::FieldError> {
                Ok($name {
                    id: fields.id::<$of>()?,
                    $($f: fields.take($crate::resource::wire!($f $($wire)?))?,)*
                })
            }
        }
    };
}

/// How a field is written in a body.
macro_rules! wire {
    ($field:ident) => {
        $crate::resource::field_name(stringify!($field))
    };
    ($field:ident $wire:literal) => {
        $wire
    };
}

pub(crate) use {resource, view, wire};

/// A keyword of Rust that is a field has `r#` before it here, and nowhere else.
pub(crate) const fn field_name(field: &'static str) -> &'static str {
    match field.as_bytes() {
        [b'r', b'#', ..] => field.split_at(2).1,
        _ => field,
    }
}
