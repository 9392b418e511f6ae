//! Decoding of the messages' variable parts within bounds: a hostile body of a megabyte must neither
//! become many megabytes of memory nor a deep recursion.
use crate::message::{MAX_BATCH, MAX_LIST};
use penstock_layout::{FileId, Layout};
use serde::de::{Deserialize, Deserializer, Error, SeqAccess, Visitor};
use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;

struct AtMost<T> {
    limit: usize,
    item: PhantomData<T>,
}

impl<'de, T: Deserialize<'de>> Visitor<'de> for AtMost<T> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at most {} items", self.limit)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Vec<T>, A::Error> {
        let announced = items.size_hint().unwrap_or(0);
        if announced > self.limit {
            return Err(A::Error::invalid_length(announced, &self));
        }
        let mut all = Vec::with_capacity(announced.min(64));
        while let Some(item) = items.next_element()? {
            if all.len() == self.limit {
                return Err(A::Error::invalid_length(self.limit + 1, &self));
            }
            all.push(item);
        }
        Ok(all)
    }
}

fn at_most<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    limit: usize,
    from: D,
) -> Result<Vec<T>, D::Error> {
    from.deserialize_seq(AtMost {
        limit,
        item: PhantomData,
    })
}

/// At most [`crate::message::MAX_GROUPS`] items.
pub(crate) fn groups<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    from: D,
) -> Result<Vec<T>, D::Error> {
    at_most(crate::message::MAX_GROUPS, from)
}

/// At most [`crate::message::MAX_USERS`] items.
pub(crate) fn users<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    from: D,
) -> Result<Vec<T>, D::Error> {
    at_most(crate::message::MAX_USERS, from)
}

/// At most [`crate::message::MAX_BYTE_USERS`] items.
pub(crate) fn byte_users<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    from: D,
) -> Result<Vec<T>, D::Error> {
    at_most(crate::message::MAX_BYTE_USERS, from)
}

/// At most [`crate::message::MAX_OWNERS`] items.
pub(crate) fn owners<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    from: D,
) -> Result<Vec<T>, D::Error> {
    at_most(crate::message::MAX_OWNERS, from)
}

/// At most [`crate::message::MAX_GIVEN`] items, or none at all.
pub(crate) fn given<'de, D: Deserializer<'de>>(
    from: D,
) -> Result<Option<Vec<(FileId, u32)>>, D::Error> {
    #[derive(serde::Deserialize)]
    struct Given(#[serde(deserialize_with = "all_given")] Vec<(FileId, u32)>);
    fn all_given<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<(FileId, u32)>, D::Error> {
        at_most(crate::message::MAX_GIVEN, from)
    }
    Ok(Option::<Given>::deserialize(from)?.map(|given| given.0))
}

/// At most [`crate::message::MAX_WRONG_COUNTS`] items.
pub(crate) fn wrong_counts<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    from: D,
) -> Result<Vec<T>, D::Error> {
    at_most(crate::message::MAX_WRONG_COUNTS, from)
}

/// At most [`crate::message::MAX_PROGRAMS`] items.
pub(crate) fn programs<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    from: D,
) -> Result<Vec<T>, D::Error> {
    at_most(crate::message::MAX_PROGRAMS, from)
}

/// At most [`crate::message::MAX_REPORT_ROWS`] items.
pub(crate) fn report_rows<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    from: D,
) -> Result<Vec<T>, D::Error> {
    at_most(crate::message::MAX_REPORT_ROWS, from)
}

/// At most [`crate::credential::MAX_RANGES`] items.
pub(crate) fn ranges<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    from: D,
) -> Result<Vec<T>, D::Error> {
    at_most(crate::credential::MAX_RANGES, from)
}

/// At most [`crate::message::MAX_KEEP`] items.
pub(crate) fn keep<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    from: D,
) -> Result<Vec<T>, D::Error> {
    at_most(crate::message::MAX_KEEP, from)
}

/// At most [`crate::revocation::MAX_REVOCATIONS`] items.
pub(crate) fn revocations<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    from: D,
) -> Result<Vec<T>, D::Error> {
    at_most(crate::revocation::MAX_REVOCATIONS, from)
}

/// At most [`Layout::MAX_SERVERS`] items.
pub(crate) fn seals<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    from: D,
) -> Result<Vec<T>, D::Error> {
    at_most(Layout::MAX_SERVERS, from)
}

/// At most [`MAX_LIST`] items.
pub(crate) fn list<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    from: D,
) -> Result<Vec<T>, D::Error> {
    at_most(MAX_LIST, from)
}

thread_local! {
    /// Whether this thread is inside a batch. A derived decoder has no argument to carry it.
    static IN_BATCH: Cell<bool> = const { Cell::new(false) };
    /// Whether it is inside a request that has a slot.
    static IN_ONCE: Cell<bool> = const { Cell::new(false) };
}

/// At most [`MAX_BATCH`] items, and no batch within a batch.
pub(crate) fn batch<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    from: D,
) -> Result<Vec<T>, D::Error> {
    if IN_BATCH.replace(true) {
        return Err(D::Error::custom("a batch within a batch"));
    }
    let items = at_most(MAX_BATCH, from);
    IN_BATCH.set(false);
    items
}

/// What a change is wrapped in: nothing that is wrapped itself, and no batch.
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

/// An encoded loop: raw bytes, at most [`crate::message::MAX_LOOP`] of them.
pub(crate) mod encoded_loop {
    use crate::message::MAX_LOOP;
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
