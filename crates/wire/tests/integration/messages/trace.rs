//! Finds the encoding of a type by decoding it: a decoder that notes what each type asks for, and gives it small
//! values.
//!
//! Postcard writes what `serde` asks for, in its order, without names. So the kinds of values, the order of fields and
//! the numbers of variants are the whole encoding. Each pass makes one value, and goes where something is unknown yet;
//! it chooses the variants of enums accordingly. The messages have no recursive types.

use serde::de::value::{Error, U32Deserializer};
use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, EnumAccess, IntoDeserializer, MapAccess,
    SeqAccess, VariantAccess, Visitor,
};
use std::any::type_name;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// The value of every number that is decoded; most types have a check that refuses 0 or a large number.
const NUMBER: u16 = 1;
/// Types whose number has another value: a stripe of one node has the chunk 0.
const ZERO: [&str; 1] = ["ChunkIndex"];
/// Enums whose type parameters give them other encodings in other places.
const GENERIC: [&str; 1] = ["Result"];
/// More levels than any message has.
const DEPTH_MAX: usize = 100;

/// The name of a struct or enum, and the number of other types with this name that were found before.
pub(super) type Key = (&'static str, usize);

/// A variant of an enum, by its number.
pub(super) type Visited = (Key, usize);

/// What is known of the encoding of a value.
#[derive(Clone, Default, Debug)]
enum Shape {
    #[default]
    Unknown,
    /// A kind of value, with the names of its parts if they have some, and the shapes of its parts.
    Of(&'static str, &'static [&'static str], Vec<Node>),
    /// A type with a name.
    Named(Key),
}

type Node = Rc<RefCell<Shape>>;

/// A struct or an enum: the names of its fields or variants, and their shapes.
#[derive(Debug)]
struct Type {
    kind: &'static str,
    names: &'static [&'static str],
    parts: Vec<Node>,
}

/// All types that were found.
#[derive(Default)]
pub(super) struct Tracer {
    types: RefCell<BTreeMap<Key, Type>>,
    /// Types of which everything is known.
    whole: RefCell<BTreeSet<Key>>,
    /// The variants that the value of this pass has.
    visited: RefCell<BTreeSet<Visited>>,
    /// The number of shapes that were found.
    found_count: RefCell<usize>,
}

impl Tracer {
    /// Finds the encoding of `T` and of all types in it. `each` gets the values that are made on the way, with the
    /// variants in them.
    pub(super) fn trace<T: DeserializeOwned>(&self, mut each: impl FnMut(&T, &BTreeSet<Visited>)) {
        let root = Node::default();
        while !self.is_whole(&root) {
            self.visited.borrow_mut().clear();
            let before = *self.found_count.borrow();
            let made = T::deserialize(Place {
                tracer: self,
                node: Rc::clone(&root),
                of: "",
                depth: 0,
            });
            if let Ok(value) = &made {
                each(value, &self.visited.borrow());
            }
            assert!(
                *self.found_count.borrow() > before,
                "{} refuses the value that shows more of it: {:?}",
                type_name::<T>(),
                made.err()
            );
        }
    }

    /// Every type with its members, as text: `enum Name` or `struct Name`, and `name: shape` for each member.
    pub(super) fn types(&self) -> BTreeMap<String, Vec<String>> {
        let types = self.types.borrow();
        let texts = types.iter().map(|(key, known)| {
            let members = known.names.iter().zip(&known.parts);
            let members = members.map(|(name, part)| format!("{name}: {}", text(part)));
            (title(known.kind, *key), members.collect())
        });
        texts.collect()
    }

    fn is_whole(&self, node: &Node) -> bool {
        match &*node.borrow() {
            Shape::Unknown => false,
            Shape::Of(_, _, parts) => parts.iter().all(|part| self.is_whole(part)),
            Shape::Named(key) => self.is_whole_type(*key),
        }
    }

    fn is_whole_type(&self, key: Key) -> bool {
        if self.whole.borrow().contains(&key) {
            return true;
        }
        let types = self.types.borrow();
        let is_whole = types[&key].parts.iter().all(|part| self.is_whole(part));
        if is_whole {
            self.whole.borrow_mut().insert(key);
        }
        is_whole
    }

    fn note_found(&self) {
        *self.found_count.borrow_mut() += 1;
    }

    /// The type with this name and these members.
    fn key_of(
        &self,
        kind: &'static str,
        name: &'static str,
        names: &'static [&'static str],
    ) -> Key {
        let mut types = self.types.borrow_mut();
        for number in 0.. {
            let key = (name, number);
            match types.get(&key) {
                Some(known) if (known.kind, known.names) == (kind, names) => return key,
                Some(_) => {}
                None => {
                    let parts = nodes(names.len());
                    types.insert(key, Type { kind, names, parts });
                    return key;
                }
            }
        }
        unreachable!("the numbers do not end")
    }
}

/// The name of a type in a text.
pub(super) fn title(kind: &str, (name, number): Key) -> String {
    match number {
        0 => format!("{kind} {name}"),
        _ => format!("{kind} {name}~{}", number + 1),
    }
}

fn nodes(count: usize) -> Vec<Node> {
    (0..count).map(|_| Node::default()).collect()
}

fn text(node: &Node) -> String {
    match &*node.borrow() {
        Shape::Unknown => "?".to_owned(),
        Shape::Named((name, 0)) => (*name).to_owned(),
        Shape::Named((name, number)) => format!("{name}~{}", number + 1),
        Shape::Of(kind, [], parts) if parts.is_empty() => (*kind).to_owned(),
        Shape::Of(kind, [], parts) => format!("{kind}({})", texts(parts)),
        Shape::Of(kind, names, parts) => {
            let parts = names.iter().zip(parts);
            let parts = parts.map(|(name, part)| format!("{name}: {}", text(part)));
            format!("{kind} {{ {} }}", parts.collect::<Vec<_>>().join(", "))
        }
    }
}

fn texts(parts: &[Node]) -> String {
    let texts: Vec<String> = parts.iter().map(text).collect();
    match texts.split_first() {
        // An array, such as a key.
        Some((first, rest)) if rest.len() > 3 && rest.iter().all(|text| text == first) => {
            format!("{first} x {}", texts.len())
        }
        _ => texts.join(", "),
    }
}

/// Decodes the value of one place.
struct Place<'a> {
    tracer: &'a Tracer,
    node: Node,
    /// The type with a name that has this place.
    of: &'static str,
    depth: usize,
}

impl<'a> Place<'a> {
    /// The shapes of the parts of a value of this kind, of which this place now has one.
    fn parts(&self, kind: &'static str, names: &'static [&'static str], count: usize) -> Vec<Node> {
        let mut shape = self.node.borrow_mut();
        if matches!(*shape, Shape::Unknown) {
            *shape = Shape::Of(kind, names, nodes(count));
            self.tracer.note_found();
        }
        match &*shape {
            Shape::Of(known, _, parts) if *known == kind && parts.len() == count => parts.clone(),
            other => panic!(
                "a place in {} has a {kind} now and {other:?} before",
                self.of
            ),
        }
    }

    /// The same for a value of a type with a name.
    fn named(
        &self,
        kind: &'static str,
        name: &'static str,
        names: &'static [&'static str],
    ) -> (Key, Vec<Node>) {
        assert!(self.depth < DEPTH_MAX, "{name} is a recursive type");
        let key = self.tracer.key_of(kind, name, names);
        let mut shape = self.node.borrow_mut();
        if matches!(*shape, Shape::Unknown) {
            *shape = Shape::Named(key);
            self.tracer.note_found();
        }
        assert!(
            matches!(*shape, Shape::Named(known) if known == key),
            "a place in {} has {name} now and {shape:?} before",
            self.of
        );
        let parts = self.tracer.types.borrow()[&key].parts.clone();
        (key, parts)
    }

    /// The places of the parts of this value.
    fn items(&self, parts: Vec<Node>, of: &'static str) -> Items<'a> {
        Items {
            tracer: self.tracer,
            parts: parts.into_iter(),
            of,
            depth: self.depth + 1,
        }
    }

    fn number(&self) -> u16 {
        if ZERO.contains(&self.of) { 0 } else { NUMBER }
    }

    fn small_number(&self) -> u8 {
        u8::try_from(self.number()).expect("the number of all places is small")
    }
}

/// Methods that give a plain value.
macro_rules! plain {
    ($($method:ident $name:literal $visit:ident $value:expr;)+) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
            self.parts($name, &[], 0);
            let value: fn(&Self) -> _ = $value;
            visitor.$visit(value(&self))
        }
    )+};
}

impl<'de> Deserializer<'de> for Place<'_> {
    type Error = Error;

    fn is_human_readable(&self) -> bool {
        false
    }

    plain! {
        deserialize_bool "bool" visit_bool |_| true;
        deserialize_u8 "u8" visit_u8 |place| place.small_number();
        deserialize_u16 "u16" visit_u16 |place| place.number();
        deserialize_u32 "u32" visit_u32 |place| place.number().into();
        deserialize_u64 "u64" visit_u64 |place| place.number().into();
        deserialize_u128 "u128" visit_u128 |place| place.number().into();
        deserialize_i8 "i8" visit_i8 |_| 1;
        deserialize_i16 "i16" visit_i16 |_| 1;
        deserialize_i32 "i32" visit_i32 |place| place.number().into();
        deserialize_i64 "i64" visit_i64 |place| place.number().into();
        deserialize_i128 "i128" visit_i128 |place| place.number().into();
        deserialize_f32 "f32" visit_f32 |place| place.number().into();
        deserialize_f64 "f64" visit_f64 |place| place.number().into();
        deserialize_char "char" visit_char |_| 'a';
        deserialize_str "str" visit_str |_| "a";
        deserialize_string "str" visit_string |_| "a".to_owned();
        deserialize_bytes "bytes" visit_bytes |_| b"a".as_slice();
        deserialize_byte_buf "bytes" visit_byte_buf |_| b"a".to_vec();
    }

    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.parts("()", &[], 0);
        visitor.visit_unit()
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let parts = self.parts("option", &[], 1);
        if self.tracer.is_whole(&parts[0]) {
            return visitor.visit_none();
        }
        let node = Rc::clone(&parts[0]);
        visitor.visit_some(Place {
            node,
            depth: self.depth + 1,
            ..self
        })
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let parts = self.parts("list", &[], 1);
        visitor.visit_seq(self.items(parts, self.of))
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let parts = self.parts("map", &[], 2);
        visitor.visit_map(self.items(parts, self.of))
    }

    fn deserialize_tuple<V: Visitor<'de>>(
        self,
        count: usize,
        visitor: V,
    ) -> Result<V::Value, Error> {
        let parts = self.parts("tuple", &[], count);
        visitor.visit_seq(self.items(parts, self.of))
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.deserialize_unit(visitor)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        let (_, parts) = self.named("struct", name, &["0"]);
        visitor.visit_newtype_struct(Place {
            node: Rc::clone(&parts[0]),
            of: name,
            depth: self.depth + 1,
            ..self
        })
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        count: usize,
        visitor: V,
    ) -> Result<V::Value, Error> {
        const NUMBERS: [&str; 8] = ["0", "1", "2", "3", "4", "5", "6", "7"];
        const NAMES: &[&str] = &NUMBERS;
        let (_, parts) = self.named("struct", name, &NAMES[..count]);
        visitor.visit_seq(self.items(parts, name))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        let (_, parts) = self.named("struct", name, fields);
        visitor.visit_seq(self.items(parts, name))
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        let (key, parts) = if GENERIC.contains(&name) {
            (None, self.parts(name, variants, variants.len()))
        } else {
            let (key, parts) = self.named("enum", name, variants);
            (Some(key), parts)
        };
        let unknown = parts.iter().position(|part| !self.tracer.is_whole(part));
        let number = unknown.unwrap_or(0);
        if let Some(key) = key {
            self.tracer.visited.borrow_mut().insert((key, number));
        }
        let place = Place {
            node: Rc::clone(&parts[number]),
            of: name,
            depth: self.depth + 1,
            ..self
        };
        visitor.visit_enum(Variant { place, number })
    }

    fn deserialize_identifier<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Error> {
        unreachable!("postcard has no names")
    }

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Error> {
        unreachable!("postcard needs to know what it reads")
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Error> {
        unreachable!("postcard needs to know what it reads")
    }
}

/// The elements of a list, a tuple or a struct, or the key and the value of a map's entry.
struct Items<'a> {
    tracer: &'a Tracer,
    parts: std::vec::IntoIter<Node>,
    of: &'static str,
    depth: usize,
}

impl<'a> Items<'a> {
    fn place(&mut self) -> Option<Place<'a>> {
        self.parts.next().map(|node| Place {
            tracer: self.tracer,
            node,
            of: self.of,
            depth: self.depth,
        })
    }
}

impl<'de> SeqAccess<'de> for Items<'_> {
    type Error = Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Error> {
        let next = self.place().map(|place| seed.deserialize(place));
        next.transpose()
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.parts.len())
    }
}

impl<'de> MapAccess<'de> for Items<'_> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Error> {
        let next = self.place().map(|place| seed.deserialize(place));
        next.transpose()
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Error> {
        let place = self.place().expect("a key has a value");
        seed.deserialize(place)
    }
}

/// A variant of an enum that was chosen, with the place of its contents.
struct Variant<'a> {
    place: Place<'a>,
    number: usize,
}

impl<'de, 'a> EnumAccess<'de> for Variant<'a> {
    type Error = Error;
    type Variant = Place<'a>;

    fn variant_seed<V: DeserializeSeed<'de>>(
        self,
        seed: V,
    ) -> Result<(V::Value, Place<'a>), Error> {
        let number = u32::try_from(self.number).expect("an enum has few variants");
        let number: U32Deserializer<Error> = number.into_deserializer();
        Ok((seed.deserialize(number)?, self.place))
    }
}

impl<'de> VariantAccess<'de> for Place<'_> {
    type Error = Error;

    fn unit_variant(self) -> Result<(), Error> {
        self.parts("()", &[], 0);
        Ok(())
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, Error> {
        seed.deserialize(self)
    }

    fn tuple_variant<V: Visitor<'de>>(self, count: usize, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_tuple(count, visitor)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        let parts = self.parts("fields", fields, fields.len());
        visitor.visit_seq(self.items(parts, self.of))
    }
}

/// A type with each kind of value.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
enum Sample {
    Unit,
    Newtype(Option<u8>),
    Tuple(Vec<u32>, [bool; 2]),
    Struct {
        map: BTreeMap<String, Inner>,
        other: Result<u64, String>,
    },
}

#[derive(Debug, serde::Serialize, serde::Deserialize)]
enum Inner {
    One,
    Two(u16),
}

#[test]
fn the_trace_shows_every_part_of_every_variant() {
    let tracer = Tracer::default();
    let mut seen = BTreeSet::new();
    tracer.trace::<Sample>(|value, visited| {
        // What is visited is what the value has.
        let number = postcard::to_stdvec(value).unwrap()[0];
        assert!(visited.contains(&(("Sample", 0), usize::from(number))));
        seen.extend(visited.iter().copied());
    });
    let variants = |name, count| (0..count).map(move |number| ((name, 0), number));
    assert_eq!(
        seen,
        variants("Sample", 4).chain(variants("Inner", 2)).collect()
    );
    let expected = [
        ("enum Inner", vec!["One: ()", "Two: u16"]),
        (
            "enum Sample",
            vec![
                "Unit: ()",
                "Newtype: option(u8)",
                "Tuple: tuple(list(u32), tuple(bool, bool))",
                "Struct: fields { map: map(str, Inner), other: Result { Ok: u64, Err: str } }",
            ],
        ),
    ];
    let expected = expected.map(|(title, members)| {
        let members: Vec<String> = members.into_iter().map(str::to_owned).collect();
        (title.to_owned(), members)
    });
    assert_eq!(tracer.types(), expected.into());
}
