//! Arithmetic of single elements of GF(2^8), and the constant tables that the kernels multiply with.
//!
//! The field has the polynomial x^8 + x^4 + x^3 + x^2 + 1 (0x11d), in which 2 generates every
//! nonzero element. ISA-L, Jerasure and the Linux RAID-6 driver use the same field, so the same
//! matrix gives the same parity bytes. [`crate::kernel`] handles whole buffers; nothing here is
//! fast on more than a few bytes.

/// The reduction polynomial with its leading bit.
const POLYNOMIAL: u16 = 0x11d;

/// Order of the multiplicative group.
const GROUP_ORDER: usize = 255;

/// Powers of 2, twice over so that a sum of two logarithms needs no reduction.
static POWERS: [u8; 2 * GROUP_ORDER] = powers();

/// Logarithms to base 2; the entry of 0 is never read.
static LOGARITHMS: [u8; 256] = logarithms();

/// `PRODUCTS[a][b]` is `a * b`.
pub(crate) static PRODUCTS: [[u8; 256]; 256] = products();

/// For each coefficient, its products with the 16 low nibbles, then with the 16 high nibbles.
pub(crate) static NIBBLES: [[u8; 32]; 256] = nibbles();

/// For each coefficient, multiplication by it as the 8x8 bit matrix that `gf2p8affineqb` takes.
pub(crate) static AFFINE: [u64; 256] = affine();

const fn powers() -> [u8; 2 * GROUP_ORDER] {
    let mut table = [0; 2 * GROUP_ORDER];
    let mut value = 1u16;
    let mut exponent = 0;
    while exponent < 2 * GROUP_ORDER {
        table[exponent] = value as u8;
        value <<= 1;
        if value & 0x100 != 0 {
            value ^= POLYNOMIAL;
        }
        exponent += 1;
    }
    table
}

const fn logarithms() -> [u8; 256] {
    let powers = powers();
    let mut table = [0; 256];
    let mut exponent = 0;
    while exponent < GROUP_ORDER {
        table[powers[exponent] as usize] = exponent as u8;
        exponent += 1;
    }
    table
}

#[allow(clippy::large_stack_arrays, reason = "it is evaluated by the compiler")]
const fn products() -> [[u8; 256]; 256] {
    let powers = powers();
    let logarithms = logarithms();
    let mut table = [[0; 256]; 256];
    let mut a = 1;
    while a < 256 {
        let mut b = 1;
        while b < 256 {
            table[a][b] = powers[logarithms[a] as usize + logarithms[b] as usize];
            b += 1;
        }
        a += 1;
    }
    table
}

const fn nibbles() -> [[u8; 32]; 256] {
    let products = products();
    let mut table = [[0; 32]; 256];
    let mut a = 0;
    while a < 256 {
        let mut nibble = 0;
        while nibble < 16 {
            table[a][nibble] = products[a][nibble];
            table[a][16 + nibble] = products[a][nibble << 4];
            nibble += 1;
        }
        a += 1;
    }
    table
}

const fn affine() -> [u64; 256] {
    let products = products();
    let mut table = [0; 256];
    let mut a = 0;
    while a < 256 {
        let mut matrix = 0u64;
        let mut output_bit = 0;
        while output_bit < 8 {
            let mut row = 0u64;
            let mut input_bit = 0;
            while input_bit < 8 {
                let product = products[a][1 << input_bit];
                row |= (((product >> output_bit) & 1) as u64) << input_bit;
                input_bit += 1;
            }
            // The instruction numbers its rows downwards: output bit 0 is the matrix's last byte.
            matrix |= row << (8 * (7 - output_bit));
            output_bit += 1;
        }
        table[a] = matrix;
        a += 1;
    }
    table
}

/// The product `a * b`.
#[must_use]
pub fn multiply(a: u8, b: u8) -> u8 {
    PRODUCTS[usize::from(a)][usize::from(b)]
}

/// The inverse of `a`.
///
/// # Panics
/// When `a` is 0, which has no inverse.
#[must_use]
pub fn invert(a: u8) -> u8 {
    assert!(a != 0, "zero has no inverse");
    POWERS[GROUP_ORDER - usize::from(LOGARITHMS[usize::from(a)])]
}

/// The quotient `a / b`.
///
/// # Panics
/// When `b` is 0.
#[must_use]
pub fn divide(a: u8, b: u8) -> u8 {
    multiply(a, invert(b))
}

/// The generator 2 raised to `exponent`, which may exceed the order of the group.
#[must_use]
pub fn power_of_two(exponent: usize) -> u8 {
    POWERS[exponent % GROUP_ORDER]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Multiplies bit by bit, by the definition and without any table.
    fn by_definition(a: u8, b: u8) -> u8 {
        let mut product = 0u16;
        for bit in 0..8 {
            if b & (1 << bit) != 0 {
                product ^= u16::from(a) << bit;
            }
        }
        for bit in (8..16).rev() {
            if product & (1 << bit) != 0 {
                product ^= POLYNOMIAL << (bit - 8);
            }
        }
        product as u8
    }

    #[test]
    fn products_follow_the_definition() {
        for a in 0..=255 {
            for b in 0..=255 {
                assert_eq!(multiply(a, b), by_definition(a, b), "{a} * {b}");
            }
        }
    }

    #[test]
    fn the_field_axioms_hold_for_all_elements() {
        for a in 0..=255u8 {
            assert_eq!(multiply(a, 1), a);
            if a != 0 {
                assert_eq!(multiply(a, invert(a)), 1, "inverse of {a}");
            }
            for b in 0..=255u8 {
                assert_eq!(multiply(a, b), multiply(b, a));
                if b != 0 {
                    assert_eq!(multiply(divide(a, b), b), a);
                }
                for c in 0..=255u8 {
                    assert_eq!(multiply(multiply(a, b), c), multiply(a, multiply(b, c)));
                    assert_eq!(multiply(a, b ^ c), multiply(a, b) ^ multiply(a, c));
                }
            }
        }
    }

    #[test]
    fn two_generates_every_nonzero_element() {
        let mut seen = [false; 256];
        for exponent in 0..GROUP_ORDER {
            seen[usize::from(power_of_two(exponent))] = true;
        }
        assert!(!seen[0] && seen[1..].iter().all(|&reached| reached));
        assert_eq!(power_of_two(GROUP_ORDER + 3), 8);
    }

    #[test]
    fn kernel_tables_multiply() {
        for a in 0..=255u8 {
            for x in 0..=255u8 {
                let nibbles = &NIBBLES[usize::from(a)];
                let looked_up = nibbles[usize::from(x & 15)] ^ nibbles[16 + usize::from(x >> 4)];
                assert_eq!(looked_up, multiply(a, x));

                let rows = AFFINE[usize::from(a)].to_be_bytes();
                let transformed = (0..8).fold(0u8, |byte, bit| {
                    byte | ((((rows[bit] & x).count_ones() & 1) as u8) << bit)
                });
                assert_eq!(transformed, multiply(a, x));
            }
        }
    }
}
