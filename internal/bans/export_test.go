package bans

// Most changes how many records a table keeps.
func (t *Table) Most(n int) { t.most = n }

// Texts returns the texts of all records.
func (t *Table) Texts() map[string]string {
	all := make(map[string]string)
	for member, r := range t.records {
		all[member] = r.String()
	}
	return all
}

// Room returns how many changes the table has room for.
func (t *Table) Room() int { return cap(t.changes) }
