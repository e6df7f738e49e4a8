//! The declaration of requests: each with its fields and its reply.

/// Declares the requests of one kind of peer in the order of their numbers on the wire, a struct for each,
/// and the trait that names each one's reply.
///
/// A request is `Name { fields }`, `Name[field]` or `Name`; or `Name(Type)` where a type of its own is
/// there already. `-> Reply { pattern => value }` says which replies of the peer are this request's;
/// a request without that is answered with `Done`.
macro_rules! calls {
    (
        $(#[$about:meta])*
        $request:ident: $call:ident, $answer:ident;
        $(
            $(#[$doc:meta])*
            $name:ident
                $({ $($(#[$field_doc:meta])* $field:ident: $field_type:ty,)+ })?
                $([$inner:ty])?
                $(($payload:ty))?
                $(-> $reply:ty { $($pattern:pat => $value:expr),+ $(,)? })?
        )+
    ) => {
        $(#[$about])*
        #[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
        pub enum $request {
            $(
                $(#[$doc])*
                $name $((calls!(@named $name $($field)+)))? $(($inner))? $(($payload))?,
            )+
        }

        impl $request {
            /// Its name, as in the table of roles and requests.
            pub const fn name(&self) -> &'static str {
                match self {
                    $(Self::$name { .. } => stringify!($name),)+
                }
            }
        }

        /// A request that names its reply.
        pub trait $call: Into<$request> + Clone + Send + 'static {
            /// The peer's answer to this request.
            type Reply: Send + 'static;

            /// The request's reply in the peer's.
            ///
            /// # Errors
            /// The peer's reply, printed, when it does not belong to this request.
            fn reply_of(answer: $answer) -> Result<Self::Reply, String>;
        }

        $(
            calls!(@declare $request $name [$({ $($(#[$field_doc])* $field: $field_type,)+ })?] [$($inner)?] [$($payload)?]);

            impl $call for calls!(@call $name $($payload)?) {
                type Reply = calls!(@reply $($reply)?);

                fn reply_of(answer: $answer) -> Result<Self::Reply, String> {
                    calls!(@match $answer answer [$($($pattern => $value,)+)?])
                }
            }
        )+
    };

    (@named $name:ident $($field:ident)+) => { $name };
    (@call $name:ident) => { $name };
    (@call $name:ident $payload:ty) => { $payload };
    (@reply) => { () };
    (@reply $reply:ty) => { $reply };
    (@match $enum:ident $answer:ident []) => {
        match $answer {
            $enum::Done => Ok(()),
            other => Err(format!("{other:?}")),
        }
    };
    (@match $enum:ident $answer:ident [$($pattern:pat => $value:expr,)+]) => {
        match $answer {
            $($pattern => Ok($value),)+
            other => Err(format!("{other:?}")),
        }
    };
    (@declare $request:ident $name:ident [] [] []) => {
        #[doc = concat!("[`", stringify!($request), "::", stringify!($name), "`].")]
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub struct $name;
        calls!(@from $request $name, _call => $request::$name);
    };
    (@declare $request:ident $name:ident [{ $($(#[$doc:meta])* $field:ident: $type:ty,)+ }] [] []) => {
        #[doc = concat!("[`", stringify!($request), "::", stringify!($name), "`].")]
        #[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
        pub struct $name {
            $($(#[$doc])* pub $field: $type,)+
        }
        calls!(@from $request $name, call => $request::$name(call));
    };
    (@declare $request:ident $name:ident [] [$inner:ty] []) => {
        #[doc = concat!("[`", stringify!($request), "::", stringify!($name), "`].")]
        #[derive(Clone, PartialEq, Eq, Debug)]
        pub struct $name(
            #[doc = "What it is about."]
            pub $inner,
        );
        calls!(@from $request $name, call => $request::$name(call.0));
    };
    (@declare $request:ident $name:ident [] [] [$payload:ty]) => {
        calls!(@from $request $payload, call => $request::$name(call));
    };
    (@from $request:ident $type:ty, $call:ident => $made:expr) => {
        impl From<$type> for $request {
            fn from($call: $type) -> Self {
                $made
            }
        }
    };
}

pub(super) use calls;
