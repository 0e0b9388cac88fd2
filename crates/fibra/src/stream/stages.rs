//! How a stage is described: once, for its three forms. See [`stages!`].
//!
//! ```text
//! downstream   pipe.map(f)        receiver to receiver: the stage is added behind what is there
//! upstream     pipe_in.map(f)     sender to sender: it is added before
//! free pair    stream::map(f)     a sender and a receiver, with the stage between
//! ```
//!
//! A description names the generics: those of both sides, of the input alone, of the output alone, and the others; then the parameters,
//! what goes in and what comes out, further bounds, and how the stage is made. `step` is one operation on one item, which can be fused;
//! `core` a loop of its own. Every described stage is in the table that the tests go by.

/// See the header.
macro_rules! stages {
    ($table:ident $module:literal:
    $(
        $(#[$doc:meta])*
        $kind:ident $name:ident
        [$($both:ident),*] [$($only_in:ident),*] [$($only_out:ident),*] [$($other:ident),*]
        ($($param:ident: $type:ty),*): $from:ty => $to:ty
        where { $($bounds:tt)* } = $make:expr;
    )+) => {
        $(
            impl<$($both,)* $($only_in,)* H: Place> Pipe<$from, H> {
                $(#[$doc])*
                #[track_caller]
                pub fn $name<'a, $($only_out,)* $($other,)*>(self, $($param: $type),*) -> Pipe<$to, H>
                where
                    H: Home<'a>,
                    $($both: Send + 'a,)* $($only_in: Send + 'a,)* $($only_out: Send + 'a,)* $($other: Send + 'a,)*
                    $($bounds)*
                {
                    self.$kind(stringify!($name), $make)
                }
            }

            stages!(@up $kind $name [$($both),*] [$($only_in),*] [$($only_out),*] [$($other),*]
                ($($param: $type),*): $from => $to where { $($bounds)* } = $make);
        )+

        /// The stages that are described here, for the tests.
        pub(super) const $table: &[&str] = &[$(stringify!($name)),+];
    };

    // The downstream form is a function that takes the items itself, and is written elsewhere.
    ($table:ident $module:literal upstream:
    $(
        $kind:ident $name:ident
        [$($both:ident),*] [$($only_in:ident),*] [$($only_out:ident),*] [$($other:ident),*]
        ($($param:ident: $type:ty),*): $from:ty => $to:ty
        where { $($bounds:tt)* } = $make:expr;
    )+) => {
        $(
            stages!(@up $kind $name [$($both),*] [$($only_in),*] [$($only_out),*] [$($other),*]
                ($($param: $type),*): $from => $to where { $($bounds)* } = $make);
        )+

        /// The stages that are described here, for the tests.
        pub(super) const $table: &[&str] = &[$(stringify!($name)),+];
    };

    (@up $kind:ident $name:ident
        [$($both:ident),*] [$($only_in:ident),*] [$($only_out:ident),*] [$($other:ident),*]
        ($($param:ident: $type:ty),*): $from:ty => $to:ty
        where { $($bounds:tt)* } = $make:expr
    ) => {
        impl<$($both,)* $($only_out,)* H: Place> PipeIn<$to, H> {
            #[doc = concat!("[`Pipe::", stringify!($name), "`], upstream: added before the other stages.")]
            #[track_caller]
            pub fn $name<'a, $($only_in,)* $($other,)*>(self, $($param: $type),*) -> PipeIn<$from, H>
            where
                H: Home<'a>,
                $($both: Send + 'a,)* $($only_in: Send + 'a,)* $($only_out: Send + 'a,)* $($other: Send + 'a,)*
                $($bounds)*
            {
                self.$kind(stringify!($name), $make)
            }
        }

        #[doc = concat!("[`Pipe::", stringify!($name), "`] as a pair of channel ends, with the stage between.")]
        #[track_caller]
        pub fn $name<$($both,)* $($only_in,)* $($only_out,)* $($other,)*>(
            $($param: $type),*
        ) -> (Sender<$from>, Receiver<$to>)
        where
            $($both: Send + 'static,)* $($only_in: Send + 'static,)*
            $($only_out: Send + 'static,)* $($other: Send + 'static,)*
            $($bounds)*
        {
            Pair.$kind(stringify!($name), $make)
        }
    };
}
pub(super) use stages;
