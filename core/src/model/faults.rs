//! All that is wrong with a document, found in one reading: a person corrects it once, not field by field.

use super::error::ModelError;

/// The most faults of a document that are kept; the others are counted.
pub const MAX_FAULTS: usize = 100;

/// Collects the faults of a document, in the order of its reading.
#[derive(Debug, Default)]
pub struct Faults {
    kept: Vec<ModelError>,
    more: usize,
}

impl Faults {
    /// Adds a fault, or each of several; the same one is kept once.
    pub fn add(&mut self, fault: ModelError) {
        if let ModelError::Several { first, others, more } = fault {
            self.add(*first);
            for other in others {
                self.add(other);
            }
            self.more += more;
        } else if self.kept.len() < MAX_FAULTS {
            if !self.kept.contains(&fault) {
                self.kept.push(fault);
            }
        } else if !self.kept.contains(&fault) {
            self.more += 1;
        }
    }

    /// Adds the faults of which none is there about the same field. `is_told` says of a field whether another fault is about it.
    pub fn add_others(&mut self, found: ModelError, is_told: impl Fn(&str) -> bool) {
        let (first, others, more) = if let ModelError::Several { first, others, more } = found {
            (*first, others, more)
        } else {
            (found, Vec::new(), 0)
        };
        for fault in std::iter::once(first).chain(others) {
            let is_known = fault.field().is_some_and(|field| {
                is_told(field) || self.kept.iter().any(|kept| kept.field() == Some(field) && *kept != fault)
            });
            if !is_known {
                self.add(fault);
            }
        }
        self.more += more;
    }

    /// Takes a value, or adds its fault.
    pub fn take<T>(&mut self, read: Result<T, ModelError>) -> Option<T> {
        read.map_err(|fault| self.add(fault)).ok()
    }

    /// Returns true if more were found than are kept.
    pub fn is_full(&self) -> bool {
        self.more > 0
    }

    /// Returns those that are kept.
    pub fn kept(&self) -> &[ModelError] {
        &self.kept
    }

    /// Returns one error of all; `None` where nothing is wrong.
    pub fn into_error(self) -> Option<ModelError> {
        let Self { kept, more } = self;
        let mut kept = kept.into_iter();
        let first = kept.next()?;
        let others: Vec<ModelError> = kept.collect();
        if others.is_empty() && more == 0 {
            return Some(first);
        }
        Some(ModelError::Several { first: Box::new(first), others, more })
    }

    /// Returns a value without a fault.
    pub fn into_result<T>(self, value: T) -> Result<T, ModelError> {
        self.into_error().map_or(Ok(value), Err)
    }
}

/// Collects the causes of a part that names its fields itself.
#[derive(Debug, Default)]
pub struct Causes(Vec<String>);

impl Causes {
    /// Adds a cause; more than a document may have of them are left out.
    pub fn add(&mut self, cause: String) {
        if self.0.len() <= MAX_FAULTS {
            self.0.push(cause);
        }
    }

    /// Takes a value, or adds the cause and takes the default.
    pub fn take<T: Default>(&mut self, read: Result<T, String>) -> T {
        read.unwrap_or_else(|cause| {
            self.add(cause);
            T::default()
        })
    }

    /// Returns a value without a fault, or the first cause.
    pub fn first<T>(self, value: T) -> Result<T, String> {
        self.0.into_iter().next().map_or(Ok(value), Err)
    }

    /// Returns them.
    pub fn into_list(self) -> Vec<String> {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(field: usize) -> ModelError {
        ModelError::Field { config: "a".to_owned(), field: format!("f{field}"), cause: "wrong".to_owned() }
    }

    #[test]
    fn one_error_names_all_within_bounds() {
        let all = |count: usize| {
            let mut faults = Faults::default();
            for field in 0..count {
                faults.add(fault(field));
            }
            faults.add(fault(0));
            faults.into_error()
        };
        assert_eq!(all(1), Some(fault(0)));
        let two = all(2).unwrap();
        assert_eq!(two.to_string(), "f0 in MachineConfig a: wrong; also f1: wrong");
        assert_eq!((two.field(), two.class(), two.faults().count()), (Some("f0"), fault(0).class(), 2));
        let flood = all(MAX_FAULTS + 7).unwrap();
        assert_eq!((flood.faults().count(), flood.more()), (MAX_FAULTS, 7));
        assert!(flood.to_string().ends_with("; also f20: wrong; and 86 more"), "{flood}");
        let mut again = Faults::default();
        again.add(flood.clone());
        assert_eq!(again.into_error(), Some(flood));
        assert_eq!(Faults::default().into_result(5), Ok(5));
    }
}
