//! Bad memory on request: for tests, and only in what is built for them.

use std::any::Any;

use lode_engine::{Host, Pool};
use lode_pmem::{Mapped, Medium};
use serde_json::{Value, json};

/// The answer to `{"op":"poison"}`: with `page`, the page at this offset of the pool is poisoned by the kernel; with `at` and
/// `bytes`, the lines there can't be loaded until they are stored as wholes.
///
/// # Errors
/// A sentence, for a request that makes no sense, and where the kernel makes no poison.
pub fn poison<M: Medium + 'static, H: Host>(
    pool: &Pool<M, H>,
    request: &Value,
) -> Result<Value, String> {
    let medium: &dyn Any = pool.medium();
    let region = medium.downcast_ref::<Mapped>().ok_or("the pool is no file")?;
    let number = |key: &str| request.get(key).and_then(Value::as_u64);
    let poisoned = match (number("page"), number("at"), number("bytes")) {
        (Some(page), None, None) => region.inject_poison(page),
        (None, Some(at), Some(bytes)) => region.inject_bad_lines(at, bytes),
        _ => return Err("either \"page\", or \"at\" and \"bytes\"".into()),
    };
    poisoned.map(|()| json!({})).map_err(|error| error.to_string())
}
