//! The declaration of requests, each with its fields and its reply, and of the function that answers them.

/// Declares the requests of one kind of peer in the order of their numbers on the wire, a struct for each,
/// and the trait that names each one's reply.
///
/// A request is `Name { fields }`, `Name[field]` or `Name`; or `Name(Type)` where a type of its own is
/// there already. `-> Reply { answer => reply }` says which answers of the peer are this request's replies;
/// a request without that is answered with `Done`. Each side is a pattern and an expression: the asker reads the list
/// from left to right, the peer from right to left.
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
                $(-> $reply:ty { $($replies:tt)+ })?
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

            /// The request's reply in the peer's answer.
            ///
            /// # Errors
            /// The peer's answer, printed, when it does not belong to this request.
            fn reply_of(answer: $answer) -> Result<Self::Reply, String>;

            /// The peer's answer with this reply.
            fn answer_of(reply: Self::Reply) -> $answer;
        }

        $(
            calls!(@declare $request $name [$({ $($(#[$field_doc])* $field: $field_type,)+ })?] [$($inner)?] [$($payload)?]);

            impl $call for calls!(@call $name $($payload)?) {
                type Reply = calls!(@reply $($reply)?);

                fn reply_of(answer: $answer) -> Result<Self::Reply, String> {
                    calls!(@reply_of $answer answer { $($($replies)+)? })
                }

                fn answer_of(reply: Self::Reply) -> $answer {
                    calls!(@answer_of $answer reply { $($($replies)+)? })
                }
            }
        )+
    };

    (@named $name:ident $($field:ident)+) => { $name };
    (@call $name:ident) => { $name };
    (@call $name:ident $payload:ty) => { $payload };
    (@reply) => { () };
    (@reply $reply:ty) => { $reply };
    (@reply_of $enum:ident $answer:ident {}) => {
        calls!(@reply_of $enum $answer { $enum::Done => () })
    };
    (@reply_of $enum:ident $answer:ident { $($pattern:pat => $reply:expr),+ $(,)? }) => {
        match $answer {
            $($pattern => Ok($reply),)+
            other => Err(format!("{other:?}")),
        }
    };
    (@answer_of $enum:ident $reply:ident {}) => {
        calls!(@answer_of $enum $reply { $enum::Done => () })
    };
    (@answer_of $enum:ident $reply:ident { $($answer:expr => $pattern:pat),+ $(,)? }) => {
        match $reply {
            $($pattern => $answer,)+
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
        #[doc = concat!("[`", stringify!($request), "::", stringify!($name), "`].")]
        pub type $name = $payload;
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

/// Declares the function that answers a peer's requests. Beside each request is the expression that answers it, with a
/// result of this request's reply. The file imports `ask` and the trait.
macro_rules! routes {
    (
        $(#[$about:meta])*
        $vis:vis async fn $route:ident($($parameters:tt)*) -> $answer:ty;
        $request:ident: $enum:ident, $call:ident;
        $($name:ident $(($asked:pat))? => $result:expr,)+
    ) => {
        $(#[$about])*
        $vis async fn $route($($parameters)*) -> $answer {
            match $request {
                $($enum::$name $(($asked))? => {
                    $result.map(<ask::$name as $call>::answer_of)
                })+
            }
        }
    };
}

pub(crate) use routes;

#[cfg(test)]
mod tests {
    use crate::message::{CoordinatorCall, CoordinatorReply, NodeCall, NodeReply};
    use crate::message::{Opening, Standing, ask};
    use gabion_layout::{NodeId, Sequence};
    use std::fmt::Debug;

    /// The peer's answer with a reply is the request's: its asker reads the same reply.
    fn check<C: CoordinatorCall<Reply: Clone + PartialEq + Debug>>(reply: &C::Reply) {
        let answer = C::answer_of(reply.clone());
        assert_eq!(C::reply_of(answer).as_ref(), Ok(reply));
    }

    #[test]
    fn a_request_s_asker_reads_the_reply_that_its_peer_has_written() {
        check::<ask::CommitPool>(&0);
        check::<ask::CommitPool>(&3);
        check::<ask::SetAside>(&Ok(()));
        check::<ask::SetAside>(&Err("wait".to_owned()));
        check::<ask::Acquire>(&Err(NodeId(1)));
        check::<ask::OpenFile>(&Opening::Gone);
        check::<ask::OpenFile>(&Opening::Over);
        check::<ask::Heartbeat>(&Standing::Rejoin);
        check::<ask::Heartbeat>(&Standing::Leave);
        check::<ask::OrderForm>(&());
        let sequence = Sequence(7);
        assert_eq!(
            ask::Stage::reply_of(ask::Stage::answer_of(sequence)),
            Ok(sequence)
        );
    }

    #[test]
    fn the_reply_of_another_request_is_none() {
        assert!(ask::CommitPool::reply_of(CoordinatorReply::Gone).is_err());
        assert!(ask::OrderForm::reply_of(CoordinatorReply::Hastened(true)).is_err());
        assert!(ask::Stage::reply_of(NodeReply::Done).is_err());
    }
}
