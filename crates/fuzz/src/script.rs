//! An input as a list of small decisions: where to change a value, and to what.
//!
//! Missing bytes are zeros, so every input is a script, and an input that ends early changes little.

/// Numbers that are often at the border of what a decoder expects.
const NUMBERS: [u64; 24] = [
    0,
    1,
    2,
    7,
    8,
    63,
    64,
    127,
    128,
    255,
    256,
    4095,
    4096,
    65_535,
    65_536,
    1 << 24,
    i32::MAX as u64,
    u32::MAX as u64,
    1 << 32,
    1 << 34,
    1 << 62,
    i64::MAX as u64,
    u64::MAX - 1,
    u64::MAX,
];

/// The rest of an input.
#[derive(Debug)]
pub(crate) struct Script<'a>(&'a [u8]);

impl<'a> Script<'a> {
    pub(crate) fn new(input: &'a [u8]) -> Self {
        Self(input)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn u8(&mut self) -> u8 {
        let Some((&first, rest)) = self.0.split_first() else {
            return 0;
        };
        self.0 = rest;
        first
    }

    pub(crate) fn u16(&mut self) -> u16 {
        u16::from_le_bytes([self.u8(), self.u8()])
    }

    pub(crate) fn u32(&mut self) -> u32 {
        u32::from(self.u16()) | u32::from(self.u16()) << 16
    }

    pub(crate) fn u64(&mut self) -> u64 {
        u64::from(self.u32()) | u64::from(self.u32()) << 32
    }

    /// A number below `end`, from two bytes; 0 if there is none.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        usize::from(self.u16()).checked_rem(end).unwrap_or(0)
    }

    /// A number at a border, or any: a byte chooses.
    pub(crate) fn number(&mut self) -> u64 {
        let choice = usize::from(self.u8());
        match choice / NUMBERS.len() {
            0..=3 => NUMBERS[choice % NUMBERS.len()],
            4 | 5 => u64::from(self.u8()),
            6 | 7 => u64::from(self.u32()),
            _ => self.u64(),
        }
    }

    /// At most `count` bytes.
    pub(crate) fn bytes(&mut self, count: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(count.min(self.0.len()));
        self.0 = rest;
        taken
    }

    /// As many bytes as the next byte says.
    pub(crate) fn piece(&mut self) -> &'a [u8] {
        let count = usize::from(self.u8());
        self.bytes(count)
    }

    /// All bytes that are left.
    pub(crate) fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0)
    }
}

/// Changes encoded bytes in one place, which need not be within them.
pub(crate) fn edit(bytes: &mut Vec<u8>, script: &mut Script<'_>) {
    let choice = script.u8();
    let at = script.below(bytes.len() + 1);
    match choice % 8 {
        0 => {
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= 1 << (choice >> 3 & 7);
            }
        }
        1 => {
            let piece = script.piece();
            let end = (at + piece.len()).min(bytes.len());
            bytes.splice(at..end, piece.iter().copied());
        }
        2 => {
            let piece = script.piece();
            bytes.splice(at..at, piece.iter().copied());
        }
        3 => {
            let end = (at + usize::from(script.u8())).min(bytes.len());
            bytes.drain(at..end);
        }
        4 => bytes.truncate(at),
        5 => {
            let from = script.below(bytes.len() + 1);
            let end = (from + usize::from(script.u8())).min(bytes.len());
            let piece = bytes[from..end].to_vec();
            bytes.splice(at..at, piece);
        }
        6 => {
            let mut varint = Vec::new();
            push_varint(&mut varint, script.number());
            let end = at + bytes[at..].iter().take_while(|&&byte| byte >= 128).count() + 1;
            bytes.splice(at..end.min(bytes.len()), varint);
        }
        _ => {
            let width = 1 << (choice >> 3 & 3);
            let number = script.number().to_le_bytes();
            let end = (at + width).min(bytes.len());
            bytes[at..end].copy_from_slice(&number[..end - at]);
        }
    }
}

/// Appends a number in base 128, low digits first.
pub(crate) fn push_varint(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 128 {
        bytes.push(number as u8 | 128);
        number >>= 7;
    }
    bytes.push(number as u8);
}
