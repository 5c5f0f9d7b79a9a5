package template

import (
	"slices"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
)

// Values are shortened in the order of the fields, none below LeastValue, and say how long they were.
func TestFieldsAreBounded(t *testing.T) {
	long, short := strings.Repeat("é", 40), "short"
	repl := caddy.NewEmptyReplacer()
	repl.Set("long", long)
	repl.Set("short", short)
	cut := func(bytes int) string { return long[:bytes] + "…[80]" } // 7 bytes more
	for _, c := range []struct {
		bounds Bounds
		want   []string
	}{
		{Bounds{256, 1024}, []string{"a", long, "b", short, "c", long}},
		{Bounds{32, 1024}, []string{"a", cut(24), "b", short, "c", cut(24)}},
		{Bounds{256, LeastEntry([]string{"a", "b", "c"})}, []string{"a", cut(24), "b", short, "c", cut(24)}},
		{Bounds{256, LeastEntry([]string{"a", "b", "c"}) + 20}, []string{"a", cut(44), "b", short, "c", cut(26)}},
	} {
		f := NewFields(c.bounds)
		f.Add("a", "{long}")
		f.Add("b", "{short}")
		f.Add("c", "{long}")
		got := f.Expand(nil, repl)
		if !slices.Equal(got, c.want) {
			t.Errorf("%+v: got %q, want %q", c.bounds, got, c.want)
		}
		if n := int64(len(strings.Join(got, ""))); n > c.bounds.Entry {
			t.Errorf("%+v: it takes %d bytes", c.bounds, n)
		}
	}
	if got := (*Fields)(nil).Expand(nil, repl); got != nil {
		t.Errorf("without fields: got %q", got)
	}
}
