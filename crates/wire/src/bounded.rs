//! Bounded decoding of the messages' variable parts: a hostile body of a megabyte must cause neither large allocations
//! nor deep recursion.
use serde::de::{Deserialize, Deserializer, Error, SeqAccess, Visitor};
use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;

struct AtMost<const LIMIT: usize, T>(PhantomData<T>);

impl<'de, const LIMIT: usize, T: Deserialize<'de>> Visitor<'de> for AtMost<LIMIT, T> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at most {LIMIT} items")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Vec<T>, A::Error> {
        let announced = items.size_hint().unwrap_or(0);
        if announced > LIMIT {
            return Err(A::Error::invalid_length(announced, &self));
        }
        let mut all = Vec::with_capacity(announced.min(64));
        while let Some(item) = items.next_element()? {
            if all.len() == LIMIT {
                return Err(A::Error::invalid_length(LIMIT + 1, &self));
            }
            all.push(item);
        }
        Ok(all)
    }
}

/// At most `LIMIT` items.
pub(crate) fn at_most<'de, const LIMIT: usize, T: Deserialize<'de>, D: Deserializer<'de>>(
    from: D,
) -> Result<Vec<T>, D::Error> {
    from.deserialize_seq(AtMost::<LIMIT, T>(PhantomData))
}

/// At most `LIMIT` items, or none at all.
pub(crate) fn at_most_if_any<'de, const LIMIT: usize, T: Deserialize<'de>, D: Deserializer<'de>>(
    from: D,
) -> Result<Option<Vec<T>>, D::Error> {
    struct Items<const LIMIT: usize, T>(Vec<T>);
    impl<'de, const LIMIT: usize, T: Deserialize<'de>> Deserialize<'de> for Items<LIMIT, T> {
        fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Items<LIMIT, T>, D::Error> {
            at_most::<LIMIT, T, D>(from).map(Items)
        }
    }
    Ok(Option::<Items<LIMIT, T>>::deserialize(from)?.map(|items| items.0))
}

thread_local! {
    /// Whether this thread is decoding a batch. A derived decoder has no argument for it.
    static IN_BATCH: Cell<bool> = const { Cell::new(false) };
    /// Whether this thread is decoding a request with a slot.
    static IN_ONCE: Cell<bool> = const { Cell::new(false) };
}

/// At most `LIMIT` items, and no batch within a batch.
pub(crate) fn batch<'de, const LIMIT: usize, T: Deserialize<'de>, D: Deserializer<'de>>(
    from: D,
) -> Result<Vec<T>, D::Error> {
    if IN_BATCH.replace(true) {
        return Err(D::Error::custom("a batch within a batch"));
    }
    let items = at_most::<LIMIT, T, D>(from);
    IN_BATCH.set(false);
    items
}

/// The request inside a slot: no slot within a slot, and no batch.
pub(crate) fn once<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    from: D,
) -> Result<Box<T>, D::Error> {
    if IN_ONCE.replace(true) {
        return Err(D::Error::custom("a slot within a slot"));
    }
    let in_batch = IN_BATCH.replace(true);
    let item = T::deserialize(from);
    IN_BATCH.set(in_batch);
    IN_ONCE.set(false);
    item.map(Box::new)
}

/// An encoded loop: raw bytes, at most [`MAX_LOOP`](crate::message::MAX_LOOP) of them.
pub(crate) mod encoded_loop {
    use crate::message::limits::MAX_LOOP;
    use serde::de::{Deserializer, Error, Visitor};
    use serde::ser::Serializer;
    use std::fmt;

    struct Bytes;

    impl Visitor<'_> for Bytes {
        type Value = Vec<u8>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "an encoded loop of at most {MAX_LOOP} bytes")
        }

        fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<Vec<u8>, E> {
            if bytes.len() > MAX_LOOP {
                return Err(E::invalid_length(bytes.len(), &self));
            }
            Ok(bytes.to_vec())
        }
    }

    pub fn serialize<S: Serializer>(bytes: &[u8], to: S) -> Result<S::Ok, S::Error> {
        to.serialize_bytes(bytes)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u8>, D::Error> {
        from.deserialize_bytes(Bytes)
    }
}
