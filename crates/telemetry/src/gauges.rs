//! Values of gauges.

/// Returns `number` as a float, such as the value of a gauge. It is exact up to 2^53.
#[expect(
    clippy::cast_precision_loss,
    reason = "numbers of bytes, records and seconds are below 2^53"
)]
pub fn as_float(number: u64) -> f64 {
    number as f64
}
