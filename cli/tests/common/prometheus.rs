//! A strict reader of Prometheus' text format.

use std::collections::{BTreeMap, BTreeSet};

/// Labels by name.
pub type Labels = BTreeMap<String, String>;

/// A metric as it was told.
#[derive(Debug, Default)]
pub struct Metric {
    pub kind: String,
    pub samples: Vec<(Labels, f64)>,
}

impl Metric {
    /// The value of the only sample whose label has this value.
    #[track_caller]
    pub fn of(&self, label: &str, value: &str) -> Option<f64> {
        let is_it = |labels: &Labels| labels.get(label).is_some_and(|found| found == value);
        let mut found = self.samples.iter().filter(|(labels, _)| is_it(labels));
        let first = found.next().map(|(_, value)| *value);
        assert!(found.next().is_none(), "two samples with {label}=\"{value}\"");
        first
    }

    /// The value of a metric that has one sample.
    #[track_caller]
    pub fn value(&self) -> f64 {
        assert_eq!(self.samples.len(), 1);
        self.samples[0].1
    }
}

/// Reads a whole text: every metric with its help, its type and then its samples, all in one
/// place, no sample twice, names and values as they must be.
///
/// # Errors
/// The line that is wrong, and why.
pub fn parse(text: &str) -> Result<BTreeMap<String, Metric>, String> {
    let mut metrics: BTreeMap<String, Metric> = BTreeMap::new();
    let (mut name, mut helped) = (String::new(), String::new());
    let mut seen = BTreeSet::new();
    if !text.ends_with('\n') {
        return Err("the last line has no end".into());
    }
    for line in text.lines() {
        let wrong = |why: &str| Err(format!("{why}: {line}"));
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let Some((about, help)) = rest.split_once(' ') else { return wrong("no help") };
            if help.is_empty() || !is_name(about) || metrics.contains_key(about) {
                return wrong("help");
            }
            helped = about.to_owned();
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let Some((about, kind)) = rest.split_once(' ') else { return wrong("no type") };
            if about != helped || !["counter", "gauge"].contains(&kind) {
                return wrong("type");
            }
            if (kind == "counter") != about.ends_with("_total") {
                return wrong("counters, and only they, end in _total");
            }
            name = about.to_owned();
            let metric = Metric { kind: kind.to_owned(), samples: Vec::new() };
            metrics.insert(name.clone(), metric);
        } else {
            let (about, labels, value) = sample(line)?;
            if about != name || !seen.insert((about, labels.clone())) {
                return wrong("not of this metric, or twice");
            }
            metrics.get_mut(&name).unwrap().samples.push((labels, value));
        }
    }
    Ok(metrics)
}

fn is_name(name: &str) -> bool {
    let first = name.chars().next().is_some_and(|c| c.is_ascii_alphabetic() || "_:".contains(c));
    first && name.chars().all(|c| c.is_ascii_alphanumeric() || "_:".contains(c))
}

/// `name{label="text",...} value`.
fn sample(line: &str) -> Result<(String, Labels, f64), String> {
    let wrong = |why: &str| format!("{why}: {line}");
    let at = line.find(['{', ' ']).ok_or_else(|| wrong("no value"))?;
    let (name, mut rest) = line.split_at(at);
    if !is_name(name) {
        return Err(wrong("no name"));
    }
    let mut labels = Labels::new();
    if let Some(inside) = rest.strip_prefix('{') {
        rest = inside;
        loop {
            let (label, behind) = rest.split_once("=\"").ok_or_else(|| wrong("no label"))?;
            let (text, behind) = quoted(behind).ok_or_else(|| wrong("no end of a label"))?;
            if !is_name(label) || labels.insert(label.to_owned(), text).is_some() {
                return Err(wrong("label"));
            }
            match behind.split_at_checked(1) {
                Some((",", more)) => rest = more,
                Some(("}", more)) => {
                    rest = more;
                    break;
                }
                _ => return Err(wrong("no end of the labels")),
            }
        }
    }
    let value = rest.strip_prefix(' ').ok_or_else(|| wrong("no space"))?;
    Ok((name.to_owned(), labels, value.parse().map_err(|_| wrong("no number"))?))
}

/// Text up to its quotation mark, and what is behind that.
fn quoted(rest: &str) -> Option<(String, &str)> {
    let mut text = String::new();
    let mut chars = rest.char_indices();
    loop {
        match chars.next()? {
            (at, '"') => return Some((text, rest.get(at + 1..)?)),
            (_, '\\') => text.push(match chars.next()?.1 {
                'n' => '\n',
                same @ ('\\' | '"') => same,
                _ => return None,
            }),
            (_, c) => text.push(c),
        }
    }
}
