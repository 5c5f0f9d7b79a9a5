package e2e_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// unclear are words that hide the subject of a sentence, or are not those of the trade. A _ is white
// space, also with the end of a line and the beginning of a comment. Brackets keep this file out.
const unclear = `[s]tands|is_none|are_none|so_many|as_many|as_ever|[l]est|by_whomever|of_ours|to_nothing|[l]ikewise|[m]eanwhile|has_to_say|is_for|(tells?|told|telling)_of|(takes?|taking|taken|took)_off|in_vain|(?-i:[Nn]obody)`

// causative finds "has X do". It is another sentence if a word of separate is between.
var (
	causative = regexp.MustCompile(strings.ReplaceAll(`\bhas((?:_[\w']+){1,5}?)_(agree|ask|begin|come|decide|deny|fail|forget|go|hear|hold|keep|know|lose|make|run|see|send|tell|wait)\b`,
		"_", `(?: +| *\n *|\n\t*(?://|--) +)`))
	separate = regexp.MustCompile(`\b(to|not|no|that|which|who|when|where|if|as|and|or|but|may|can|could|will|would|must|do|does|cannot|they|it|he|what|how|than|then|until|before|after|for|of|in|on|at|by|with|from|is|are|was|were|been|nothing|never|already|ever|only)\b`)
)

// TestWords looks for unclear words in code, comments, errors and documents.
func TestWords(t *testing.T) {
	word := regexp.MustCompile(`(?i)\b(` + strings.ReplaceAll(unclear, "_", `[\s/*|-]+`) + `)\b`)
	err := filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || path == "CHANGELOG.md" || !slices.Contains([]string{".go", ".lua", ".md"}, filepath.Ext(path)) {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		found := word.FindAllIndex(text, -1)
		for _, at := range causative.FindAllSubmatchIndex(text, -1) {
			if !separate.Match(text[at[2]:at[3]]) {
				found = append(found, at[:2])
			}
		}
		for _, at := range found {
			t.Errorf("%s:%d: %q: write it in other words", path, 1+strings.Count(string(text[:at[0]]), "\n"), text[at[0]:at[1]])
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
