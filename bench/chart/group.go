package chart

import "slices"

// Group joins rows whose cells are the same, under the names of all of them.
func Group(rows []Row) []Row {
	var grouped []Row
	for _, r := range rows {
		i := slices.IndexFunc(grouped, func(g Row) bool { return slices.Equal(g.Cells, r.Cells) })
		if i < 0 {
			grouped = append(grouped, r)
			continue
		}
		grouped[i].Name += "\n" + r.Name
	}
	return grouped
}
