//! Values that are checked when they are read from a message or a disk. Those that the code makes itself are not.

/// Implements `Serialize` and `Deserialize` for a type that derives both with `#[serde(remote = "Self")]`. A value for
/// which `$is_possible` is false is refused.
macro_rules! checked {
    ($type:ty, $is_possible:expr) => {
        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                Self::serialize(self, serializer)
            }
        }

        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let value = Self::deserialize(deserializer)?;
                let is_possible: fn(&Self) -> bool = $is_possible;
                if is_possible(&value) {
                    Ok(value)
                } else {
                    Err(serde::de::Error::custom("an impossible value"))
                }
            }
        }
    };
}

pub(crate) use checked;
