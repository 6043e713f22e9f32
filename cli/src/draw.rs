//! Pictures of numbers in characters: tables, bars, maps.

/// A place of a map without anything, then ever more.
const LEVELS: [char; 9] = ['·', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// The place of a map with the most.
pub(crate) const FULL: char = '█';
/// Parts of a place of a bar, in eighths.
const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];

/// A bar for `value`, `width` places long where it is `most`; never nothing for more than 0.
pub(crate) fn bar(value: u64, most: u64, width: usize) -> String {
    if value == 0 || most == 0 {
        return String::new();
    }
    let eighths = u128::from(value.min(most)) * (width as u128 * 8) / u128::from(most);
    let eighths = usize::try_from(eighths).unwrap_or(usize::MAX).max(1);
    let part = EIGHTHS.get(eighths % 8).copied().unwrap_or_default();
    format!("{}{part}", FULL.to_string().repeat(eighths / 8))
}

/// A map of values, in reading order.
pub(crate) struct HeatMap {
    /// Its rows, each ended.
    pub(crate) text: String,
    /// Values summed up in each place.
    pub(crate) values_in_cell: usize,
    /// The largest sum.
    pub(crate) most: u64,
}

/// A map of `values` in at most `rows` rows of `width` places. Equally many values make a place,
/// so that the places can be compared (the last may have fewer).
pub(crate) fn heat_map(values: &[u64], width: usize, rows: usize) -> HeatMap {
    let width = width.max(1);
    let values_in_cell = values.len().div_ceil(width.saturating_mul(rows).max(1)).max(1);
    let cells: Vec<u64> = values
        .chunks(values_in_cell)
        .map(|values| values.iter().fold(0_u64, |sum, value| sum.saturating_add(*value)))
        .collect();
    let most = cells.iter().copied().max().unwrap_or_default();
    let mut text = String::new();
    for row in cells.chunks(width) {
        text.extend(row.iter().map(|value| level(*value, most)));
        text.push('\n');
    }
    HeatMap { text, values_in_cell, most }
}

/// How full a place is; one with anything in it is not empty.
fn level(value: u64, most: u64) -> char {
    let top = LEVELS.len() - 1;
    let level = (u128::from(value) * top as u128).div_ceil(u128::from(most.max(1)));
    LEVELS.get(usize::try_from(level).unwrap_or(top)).copied().unwrap_or(FULL)
}

/// Two texts side by side, with so many places between them.
pub(crate) fn beside(left: &str, right: &str, gap: usize) -> String {
    let width = left.lines().map(|line| line.chars().count()).max().unwrap_or(0) + gap;
    let (mut left, mut right) = (left.lines(), right.lines());
    let mut text = String::new();
    loop {
        let (one, other) = (left.next(), right.next());
        if one.is_none() && other.is_none() {
            return text;
        }
        let line = format!("{:width$}{}", one.unwrap_or_default(), other.unwrap_or_default());
        text.push_str(line.trim_end());
        text.push('\n');
    }
}

/// Rows of cells: the first column flush left, numbers behind it flush right, a last column of
/// bars as it is.
#[derive(Default)]
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// Adds a row.
    pub(crate) fn row(&mut self, cells: &[&str]) {
        self.rows.push(cells.iter().map(|cell| (*cell).to_owned()).collect());
    }

    /// All rows as text, each ended.
    pub(crate) fn text(&self) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or_default();
        let cells = |column: usize| self.rows.iter().filter_map(move |row| row.get(column));
        let wide = |column: usize| cells(column).map(|cell| cell.chars().count()).max();
        let widths: Vec<usize> = (0..columns).map(|column| wide(column).unwrap_or(0)).collect();
        let mut text = String::new();
        for row in &self.rows {
            let mut line = String::new();
            for (at, (cell, width)) in row.iter().zip(&widths).enumerate() {
                match at {
                    0 => line.push_str(&format!("{cell:width$}")),
                    _ if is_number(cell) => line.push_str(&format!("  {cell:>width$}")),
                    _ => line.push_str(&format!("  {cell:<width$}")),
                }
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}

/// Numbers and the titles above them.
fn is_number(cell: &str) -> bool {
    !cell.starts_with(|first: char| first == FULL || EIGHTHS.contains(&first.to_string().as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_as_long_as_their_part() {
        assert_eq!(bar(0, 10, 8), "");
        assert_eq!(bar(10, 10, 8), "████████");
        assert_eq!(bar(5, 10, 8), "████");
        assert_eq!(bar(1, 1_000_000, 8), "▏");
        assert_eq!(bar(3, 16, 2), "▍");
        assert_eq!(bar(u64::MAX, u64::MAX, 3), "███");
        assert_eq!(bar(9, 3, 2), "██", "never longer than its room");
    }

    #[test]
    fn a_map_keeps_to_its_room_and_shows_what_there_is() {
        let map = heat_map(&[0, 1, 4, 8], 80, 4);
        assert_eq!((map.text.as_str(), map.values_in_cell, map.most), ("·▁▄█\n", 1, 8));
        let values: Vec<u64> = (0..1024).map(|value| u64::from(value == 1023)).collect();
        let map = heat_map(&values, 30, 4);
        let rows: Vec<&str> = map.text.lines().collect();
        assert!(rows.len() <= 4 && rows.iter().all(|row| row.chars().count() <= 30));
        assert_eq!((map.values_in_cell, map.most), (9, 1));
        let places: String = rows.concat();
        assert_eq!(places.chars().count(), 1024_usize.div_ceil(9));
        assert!(places.ends_with(FULL) && places.matches('·').count() == 113);
        assert_eq!(heat_map(&[0, 1, 100], 9, 1).text, "·▁█\n", "little is not nothing");
        assert_eq!(heat_map(&[u64::MAX, u64::MAX], 1, 1).most, u64::MAX);
        assert_eq!(heat_map(&[], 0, 0).text, "");
    }

    #[test]
    fn texts_stand_side_by_side() {
        assert_eq!(beside("a\nbcd\n", "1\n2\n3\n", 2), "a    1\nbcd  2\n     3\n");
        assert_eq!(beside("a\nb\n", "", 2), "a\nb\n");
    }

    #[test]
    fn tables_are_aligned() {
        let mut table = Table::default();
        table.row(&["", "count"]);
        table.row(&["create", "5", "██"]);
        table.row(&["x", "12345678"]);
        assert_eq!(table.text(), "           count\ncreate         5  ██\nx       12345678\n");
    }
}
