//! All tests.
