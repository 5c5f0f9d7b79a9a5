package cli

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// narrowest is the least width of a column that wraps.
const narrowest = 10

// output is where a command writes. width is that of the terminal, at which lines wrap between words; 0 for a pipe, a
// file and --wide: tables then have all columns.
type output struct {
	io.Writer
	width int
}

// Write writes whole lines. A word that is longer than a line stays in one piece, so that people can copy it.
func (o *output) Write(p []byte) (int, error) {
	for line := range strings.Lines(string(p)) {
		if _, err := io.WriteString(o.Writer, o.wrap(line)); err != nil {
			return 0, err
		}
	}
	return len(p), nil
}

func (o *output) wrap(line string) string {
	if o.width == 0 || textWidth(strings.TrimSuffix(line, "\n")) <= o.width {
		return line
	}
	var b strings.Builder
	at := 0
	for word := range strings.FieldsSeq(line) {
		width := textWidth(word)
		switch {
		case at == 0:
		case at+1+width > o.width:
			b.WriteByte('\n')
			at = 0
		default:
			b.WriteByte(' ')
			at++
		}
		b.WriteString(word)
		at += width
	}
	b.WriteByte('\n')
	return b.String()
}

// sheet is a table. On a terminal it takes no more room than there is:
//   - Columns that are empty are left out.
//   - A column of once that is the same in all rows is a line below the table.
//   - If the table is still too wide, columns of spare are left out, those of below become lines below it, and
//     other long cells wrap.
type sheet struct {
	out    io.Writer
	width  int
	header []string
	rows   [][]any
	// Names of columns. Those of spare and below go in this order, until the table fits.
	once, spare, below []string
	counts             []string // columns of numbers, of which 0 is as good as empty
	right              bool     // all columns but the first have numbers
}

func newTable(w io.Writer, header ...string) *sheet {
	s := &sheet{out: w, header: header}
	if o, ok := w.(*output); ok {
		s.width = o.width
	}
	return s
}

func (s *sheet) add(cells ...any) { s.rows = append(s.rows, cells) }

// render writes the table, and what is left out of it below.
func (s *sheet) render() {
	shown := make([]int, 0, len(s.header))
	var same, lines []string
	for at, name := range s.header {
		switch {
		case s.width == 0:
		case s.isEmpty(at):
			continue
		case slices.Contains(s.once, name) && s.isSame(at):
			same = append(same, name+" "+fmt.Sprint(s.rows[0][at]))
			continue
		}
		shown = append(shown, at)
	}
	isTooWide := func() bool { return s.width > 0 && s.total(shown, s.widths(shown)) > s.width }
	for _, name := range slices.Concat(s.spare, s.below) {
		at := slices.Index(s.header, name)
		if !isTooWide() || !slices.Contains(shown, at) {
			continue
		}
		shown = slices.DeleteFunc(shown, func(other int) bool { return other == at })
		if slices.Contains(s.spare, name) {
			lines = append(lines, "--wide shows "+name+", too.")
		} else {
			lines = append(lines, s.linesOf(at)...)
		}
	}
	s.write(shown)
	if same != nil {
		line := strings.Join(same, ", ") + "."
		if len(s.rows) > 1 {
			line = "In all rows: " + line
		}
		lines = append([]string{line}, lines...)
	}
	for i, line := range lines {
		if i == 0 {
			_, _ = fmt.Fprintln(s.out)
		}
		_, _ = fmt.Fprintln(s.out, line)
	}
}

func (s *sheet) isEmpty(at int) bool {
	return !slices.ContainsFunc(s.rows, func(row []any) bool {
		cell := fmt.Sprint(row[at])
		return cell != "" && (cell != "0" || !slices.Contains(s.counts, s.header[at]))
	})
}

func (s *sheet) isSame(at int) bool {
	return !slices.ContainsFunc(s.rows, func(row []any) bool { return row[at] != s.rows[0][at] })
}

// linesOf returns a line for each text of a column, with the rows that have it.
func (s *sheet) linesOf(at int) (lines []string) {
	var texts []string
	names := make(map[string][]string)
	for _, row := range s.rows {
		cell := fmt.Sprint(row[at])
		if cell == "" {
			continue
		}
		if names[cell] == nil {
			texts = append(texts, cell)
		}
		if name := fmt.Sprint(row[0]); !slices.Contains(names[cell], name) {
			names[cell] = append(names[cell], name)
		}
	}
	for _, cell := range texts {
		lines = append(lines, fmt.Sprintf("%s of %s: %s", s.header[at], strings.Join(names[cell], ", "), cell))
	}
	return lines
}

// widths returns the widths of columns.
func (s *sheet) widths(shown []int) []int {
	all := make([]int, len(shown))
	for i, at := range shown {
		all[i] = len(s.header[at])
		for _, row := range s.rows {
			all[i] = max(all[i], textWidth(fmt.Sprint(row[at])))
		}
	}
	return all
}

// total returns the width of a row: each column has a blank on both sides.
func (s *sheet) total(shown, widths []int) (sum int) {
	for i := range shown {
		sum += widths[i] + 2
	}
	return sum
}

// fit returns widths of columns that fit: the widest ones wrap.
func (s *sheet) fit(shown []int) []int {
	widths := s.widths(shown)
	for s.width > 0 && s.total(shown, widths) > s.width {
		widest := 0
		for i := range widths {
			if widths[i] > widths[widest] {
				widest = i
			}
		}
		if widths[widest] <= narrowest {
			break
		}
		widths[widest]--
	}
	return widths
}

// write writes the columns that are shown, as plain text. It pads lines with blanks to the width of the table.
func (s *sheet) write(shown []int) {
	widths := s.fit(shown)
	rows := make([][][]string, 1, len(s.rows)+1) // the lines of each cell
	for i, at := range shown {
		rows[0] = append(rows[0], broken(strings.ToUpper(s.header[at]), widths[i]))
	}
	for _, row := range s.rows {
		var cells [][]string
		for i, at := range shown {
			cells = append(cells, broken(fmt.Sprint(row[at]), widths[i]))
		}
		rows = append(rows, cells)
	}
	for i := range shown {
		widths[i] = 0
		for _, cells := range rows {
			for _, line := range cells[i] {
				widths[i] = max(widths[i], textWidth(line))
			}
		}
	}
	var b strings.Builder
	for _, cells := range rows {
		for at := range slices.MaxFunc(cells, func(a, b []string) int { return len(a) - len(b) }) {
			for i, lines := range cells {
				line := ""
				if at < len(lines) {
					line = lines[at]
				}
				blanks := strings.Repeat(" ", widths[i]-textWidth(line))
				if s.right && shown[i] > 0 {
					line = blanks + line
				} else {
					line += blanks
				}
				b.WriteString(" " + line + " ")
			}
			b.WriteByte('\n')
		}
	}
	out := s.out
	if o, ok := out.(*output); ok {
		out = o.Writer // rows do not wrap
	}
	_, _ = io.WriteString(out, b.String())
}
